"""Condition and filter expressions, compiled once and then evaluated item by item.

The emulator reads an expression anew for every item, and takes functions it does not know for attribute names.
Tokens, comparison and the checks of syntax stay the emulator's; what an expression means is put together here.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any

import ministack.services.dynamodb as emulated

from bulkexec.sandbox.capacity import Item

Value = dict[str, Any] | None
Operand = Callable[[Item], Value]
Condition = Callable[[Item], bool]
Token = tuple[str, str]

_COMPARATORS = {"EQ": "=", "NE": "<>", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_ORDERED = ("S", "N", "B")
_TYPES = ("B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M")
_ARGUMENTS = {"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2}
_NAMES_OF_FUNCTIONS = (*_ARGUMENTS, "size")
_MOST_OPERANDS_OF_IN = 100
_MOST_OPERATORS = 300
_OPERATOR_WORDS = ("AND", "OR", "NOT", "BETWEEN", "IN")


def compile_condition(text: str, values: Mapping[str, Any], names: Mapping[str, str], slot: str) -> Condition:
    """What an expression says of an item. Raises ValueError with DynamoDB's message; `slot` is the parameter's name,
    e.g. `FilterExpression`. An empty expression holds for every item."""
    if not text.strip():
        return lambda _: True
    tokens: list[Token] = emulated._tokenize(text)
    refusal = emulated._check_redundant_parens(tokens, slot) or emulated._check_reserved_keyword_usage(tokens)
    refusal = refusal or emulated._condition_syntax_error(text, slot)
    if refusal:
        raise ValueError(refusal.replace("Invalid UpdateExpression", f"Invalid {slot}"))
    _check_operators(tokens, slot)
    try:
        return _Compiler(tokens, values, names).compile()
    except ValueError as error:
        raise ValueError(f"Invalid {slot}: {error}") from error


def _check_operators(tokens: list[Token], slot: str) -> None:
    """Limits page: 300 operators or functions in an expression."""
    words = sum(
        kind == "IDENT" and (text.upper() in _OPERATOR_WORDS or text in _NAMES_OF_FUNCTIONS) for kind, text in tokens
    )
    count = words + sum(kind in _COMPARATORS for kind, _ in tokens)
    if count > _MOST_OPERATORS:
        raise ValueError(f"Invalid {slot}: The expression contains too many operators; operator count: {count}")


class _Compiler:
    """Recursive descent over tokens whose syntax has been checked."""

    def __init__(self, tokens: list[Token], values: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._tokens, self._values, self._names = tokens, values, names
        self._position = 0

    def compile(self) -> Condition:
        return self._either()

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._peek()
        self._position += 1
        return token

    def _word(self, word: str) -> bool:
        kind, text = self._peek()
        if kind != "IDENT" or text.upper() != word:
            return False
        self._position += 1
        return True

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._word("OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda item: any(part(item) for part in parts)

    def _both(self) -> Condition:
        parts = [self._negated()]
        while self._word("AND"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else lambda item: all(part(item) for part in parts)

    def _negated(self) -> Condition:
        if self._word("NOT"):
            inner = self._negated()
            return lambda item: not inner(item)
        return self._single()

    def _single(self) -> Condition:
        if self._peek()[0] == "LPAREN":
            self._take()
            inner = self._either()
            self._take()
            return inner
        if self._calls() and self._peek()[1] != "size":
            return self._function()
        return self._comparison()

    def _calls(self) -> bool:
        return self._peek()[0] == "IDENT" and self._peek(1)[0] == "LPAREN"

    def _comparison(self) -> Condition:
        began = self._position
        left = self._operand()
        if self._word("BETWEEN"):
            return self._between(left)
        if self._word("IN"):
            return self._in(left)
        comparator = _COMPARATORS[self._take()[0]]
        if comparator not in ("=", "<>"):
            self._want_type(comparator, self._peek(), _ORDERED)
        middle = self._position
        right = self._operand()
        self._want_distinct(comparator, self._tokens[began : middle - 1], self._tokens[middle : self._position])
        compare = emulated._compare_ddb
        return lambda item: compare(left(item), comparator, right(item))

    def _between(self, left: Operand) -> Condition:
        bounds = self._peek(), self._peek(2)
        low = self._operand()
        self._take()
        high = self._operand()
        known = [self._values.get(text) for kind, text in bounds if kind == "VALUE_REF"]
        if len(known) == 2 and emulated._between_bounds_error(*known):
            raise ValueError("The BETWEEN operator requires upper bound to be greater than or equal to lower bound")
        compare = emulated._compare_ddb
        return lambda item: compare(low(item), "<=", left(item)) and compare(left(item), "<=", high(item))

    def _in(self, left: Operand) -> Condition:
        options = self._arguments()
        if len(options) > _MOST_OPERANDS_OF_IN:
            raise ValueError(f"Invalid number of operands for operator: IN, number of operands: {len(options)}")
        compare = emulated._compare_ddb
        return lambda item: any(compare(left(item), "=", option(item)) for option in options)

    def _arguments(self) -> list[Operand]:
        self._take()
        operands = [self._operand()]
        while self._peek()[0] == "COMMA":
            self._take()
            operands.append(self._operand())
        self._take()
        return operands

    def _operand(self) -> Operand:
        if self._calls():
            return self._size()
        kind, text = self._peek()
        if kind == "VALUE_REF":
            self._take()
            value = self._values.get(text)
            return lambda _: value
        return self._path()

    def _path(self) -> Operand:
        parts = self._parts()
        if len(parts) == 1:
            name = parts[0]
            return lambda item: item.get(name)  # type: ignore[arg-type]  # one part is a name
        return lambda item: emulated._get_at_path(item, parts)

    def _parts(self) -> list[str | int]:
        parts: list[str | int] = [self._name()]
        while self._peek()[0] in ("DOT", "LBRACKET"):
            if self._take()[0] == "DOT":
                parts.append(self._name())
            else:
                parts.append(int(self._take()[1]))
                self._take()
        return parts

    def _name(self) -> str:
        _, text = self._take()
        return self._names.get(text, text)

    def _size(self) -> Operand:
        name = self._take()[1]
        if name != "size":
            known = name in _NAMES_OF_FUNCTIONS
            wrong = f"The function is not allowed to be used this way in an expression; function: {name}"
            raise ValueError(wrong if known else f"Invalid function name; function: {name}")
        arguments = self._arguments()
        if len(arguments) != 1:
            raise ValueError(_wrong_number("size", len(arguments)))
        of = arguments[0]

        def size(item: Item) -> Value:
            value = of(item)
            return None if value is None else {"N": str(emulated._ddb_size(value))}

        return size

    def _function(self) -> Condition:
        name = self._take()[1]
        if name not in _ARGUMENTS:
            raise ValueError(f"Invalid function name; function: {name}")
        if self._peek(1)[0] == "VALUE_REF" and name != "contains":
            raise ValueError(f"Operator or function requires a document path; operator or function: {name}")
        second, began = self._second_argument(), self._position
        arguments = self._arguments()
        if len(arguments) != _ARGUMENTS[name]:
            raise ValueError(_wrong_number(name, len(arguments)))
        if second is not None:
            self._check_second(name, second)
            inside = self._tokens[began + 1 : self._position - 1]
            comma = inside.index(("COMMA", ","))
            self._want_distinct(name, inside[:comma], inside[comma + 1 :])
        return FUNCTIONS[name](*arguments)

    def _second_argument(self) -> Token | None:
        depth = 0
        for ahead, (kind, _) in enumerate(self._tokens[self._position :]):
            depth += (kind == "LPAREN") - (kind == "RPAREN")
            if depth == 0:
                return None
            if kind == "COMMA" and depth == 1:
                return self._peek(ahead + 1)
        return None

    def _want_distinct(self, name: str, first: list[Token], second: list[Token]) -> None:
        if first == second:
            shown = ".".join(self._names.get(text, text) for kind, text in first if kind in ("IDENT", "NAME_REF"))
            where = f"operator: {name}, first operand: [{shown}]"
            raise ValueError(
                f"The first operand must be distinct from the remaining operands for this operator or function; {where}"
            )

    def _check_second(self, name: str, token: Token) -> None:
        if name == "begins_with":
            self._want_type(name, token, ("S", "B"))
        if name == "attribute_type":
            self._want_type(name, token, ("S",))
            wanted = (self._values.get(token[1]) or {}).get("S", "S")
            if wanted not in _TYPES:
                valid = ",".join(_TYPES)
                raise ValueError(f"Invalid attribute type name found; type: {wanted}, valid types: {{{valid}}}")

    def _want_type(self, name: str, token: Token, types: tuple[str, ...]) -> None:
        value = self._values.get(token[1]) if token[0] == "VALUE_REF" else None
        kind = next(iter(value)) if value else types[0]
        if kind not in types:
            where = f"operator or function: {name}, operand type: {kind}"
            raise ValueError(f"Incorrect operand type for operator or function; {where}")


def _wrong_number(name: str, count: int) -> str:
    where = f"operator or function: {name}, number of operands: {count}"
    return f"Incorrect number of operands for operator or function; {where}"


def _exists(path: Operand) -> Condition:
    return lambda item: path(item) is not None


def _not_exists(path: Operand) -> Condition:
    return lambda item: path(item) is None


def _has_type(path: Operand, wanted: Operand) -> Condition:
    def holds(item: Item) -> bool:
        value = path(item)
        return value is not None and (wanted(item) or {}).get("S") in value

    return holds


def _begins_with(path: Operand, prefix: Operand) -> Condition:
    def holds(item: Item) -> bool:
        value, start = path(item) or {}, prefix(item) or {}
        if "S" in value and "S" in start:
            return bool(value["S"].startswith(start["S"]))
        return "B" in value and "B" in start and _bytes(value).startswith(_bytes(start))

    return holds


def _bytes(value: dict[str, Any]) -> bytes:
    return base64.b64decode(value["B"])


def _contains(path: Operand, part: Operand) -> Condition:
    def holds(item: Item) -> bool:
        value, wanted = path(item), part(item)
        if value is None or wanted is None:
            return False
        ((kind, content),) = value.items()
        if kind == "S":
            return wanted.get("S", None) is not None and wanted["S"] in content
        if kind == "B":
            return "B" in wanted and _bytes(wanted) in _bytes(value)
        members = content if kind == "L" else [{kind[0]: one} for one in content] if kind in ("SS", "NS", "BS") else []
        return any(emulated._ddb_equals(member, wanted) for member in members)

    return holds


FUNCTIONS: dict[str, Callable[..., Condition]] = {
    "attribute_exists": _exists,
    "attribute_not_exists": _not_exists,
    "attribute_type": _has_type,
    "begins_with": _begins_with,
    "contains": _contains,
}
"""Functions that are conditions by themselves."""


class Conditions:
    """Compiled conditions of the request at hand: within one, an expression comes with the same values each time."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] = ()
        self._compiled: Condition = lambda _: True

    def evaluate(self, text: str, item: Item, values: Any, names: Any, slot: str = "ConditionExpression") -> bool:
        """Stands in for the emulator's `_evaluate_condition`."""
        asked = (text, values, names, slot)
        if len(self._last) != len(asked) or any(one is not other for one, other in zip(self._last, asked, strict=True)):
            self._compiled = compile_condition(text or "", values or {}, names or {}, slot)
            self._last = asked
        return self._compiled(item)
