"""Update expressions read by their grammar, before anything is applied.

update    = section { section }, each of SET, REMOVE, ADD and DELETE once at most
SET       = path "=" value { "," path "=" value },  value = operand [ ("+" | "-") operand ]
operand   = path | :value | if_not_exists(path, operand) | list_append(operand, operand)
REMOVE    = path { "," path },  ADD and DELETE = path :value { "," path :value }
(developer guide, "Using update expressions"; the emulator takes much more than that)
"""

import re
from collections.abc import Mapping
from typing import Any

import ministack.services.dynamodb as emulated

SECTIONS = ("SET", "REMOVE", "ADD", "DELETE")
_LETTERS = re.compile(r"[\s\w#:.,\[\]()+=-]*")

Path = tuple[str | int, ...]


class UpdateExpression:
    """What an expression says: its sections and the paths it changes. Raises ValueError with DynamoDB's message."""

    def __init__(self, text: str, values: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._values, self._names = values, names
        self._tokens: list[tuple[str, str]] = emulated._tokenize(text)
        self._position = 0
        self.sections: list[str] = []
        self.paths: list[Path] = []
        if not _LETTERS.fullmatch(text):
            raise _syntax(text)
        while self._peek()[0] != "EOF":
            self._section()
        _check_overlap(self.paths)

    @property
    def removes_only(self) -> bool:
        """Whether it can only take away, so that it makes no item where there is none."""
        return set(self.sections) <= {"REMOVE", "DELETE"}

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._position]

    def _take(self, *kinds: str) -> str:
        kind, text = self._peek()
        if kind not in kinds:
            raise _syntax(text or "<EOF>")
        self._position += 1
        return text

    def _section(self) -> None:
        name = self._take("IDENT").upper()
        if name not in SECTIONS:
            raise _syntax(name)
        if name in self.sections:
            raise ValueError(
                f'Invalid UpdateExpression: The "{name}" section can only be used once in an update expression;'
            )
        self.sections.append(name)
        self._action(name)
        while self._peek()[0] == "COMMA":
            self._take("COMMA")
            self._action(name)

    def _action(self, section: str) -> None:
        self.paths.append(self._path())
        if section == "SET":
            self._take("EQ")
            self._value()
        elif section != "REMOVE":
            self._take("VALUE_REF")

    def _value(self) -> None:
        left = self._peek()
        self._operand()
        kind, operator = self._peek()
        if kind in ("PLUS", "MINUS"):
            self._take(kind)
            for token in (left, self._peek()):
                self._want_type(operator, token, "N", "operator")
            self._operand()

    def _operand(self) -> None:
        kind, text = self._peek()
        if kind == "VALUE_REF":
            self._take(kind)
        elif kind == "LPAREN":
            self._take("LPAREN")
            self._value()
            self._take("RPAREN")
        elif kind == "IDENT" and self._tokens[self._position + 1][0] == "LPAREN":
            self._function(text)
        else:
            self._path()

    def _function(self, name: str) -> None:
        if name not in ("if_not_exists", "list_append"):
            raise ValueError(f"Invalid UpdateExpression: Invalid function name; function: {name}")
        self._take("IDENT")
        self._take("LPAREN")
        if name == "if_not_exists":
            self._path()
        else:
            self._list_operand(name)
        self._take("COMMA")
        if name == "if_not_exists":
            self._operand()
        else:
            self._list_operand(name)
        self._take("RPAREN")

    def _list_operand(self, name: str) -> None:
        self._want_type(name, self._peek(), "L", "operator or function")
        self._operand()

    def _want_type(self, operator: str, token: tuple[str, str], wanted: str, what: str) -> None:
        value = self._values.get(token[1]) if token[0] == "VALUE_REF" else None
        if value and wanted not in value:
            where = f"{what}: {operator}, operand type: {emulated._operand_type(value)}"
            raise ValueError(f"Invalid UpdateExpression: Incorrect operand type for operator or function; {where}")

    def _path(self) -> Path:
        parts: list[str | int] = [self._name()]
        while self._peek()[0] in ("DOT", "LBRACKET"):
            if self._take("DOT", "LBRACKET") == ".":
                parts.append(self._name())
            else:
                parts.append(int(self._take("NUMBER")))
                self._take("RBRACKET")
        return tuple(parts)

    def _name(self) -> str:
        text = self._take("IDENT", "NAME_REF")
        return self._names.get(text, text)


def _syntax(token: str) -> ValueError:
    return ValueError(f'Invalid UpdateExpression: Syntax error; token: "{token}", near: "{token}"')


def _check_overlap(paths: list[Path]) -> None:
    for position, later in enumerate(paths):
        for earlier in paths[:position]:
            shared = min(len(earlier), len(later))
            if earlier[:shared] == later[:shared]:
                raise ValueError(
                    "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite one "
                    f"of these paths; path one: {_shown(earlier)}, path two: {_shown(later)}"
                )


def _shown(path: Path) -> str:
    return "[" + ", ".join(f"[{part}]" if isinstance(part, int) else part for part in path) + "]"
