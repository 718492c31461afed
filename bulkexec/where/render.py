"""The tree of a filter, written out in the two languages of DynamoDB: expressions and PartiQL."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bulkexec.model import Expression
from bulkexec.where.tree import (
    And,
    AttributeType,
    BeginsWith,
    Between,
    Comparison,
    Contains,
    In,
    IsMissing,
    IsNull,
    Leaf,
    Node,
    Not,
    Operand,
    Or,
    Path,
    Size,
    Value,
    paths,
    quoted,
)


@dataclass
class Aliases:
    """Hands out one alias for each different name and value."""

    prefix: tuple[str, str] = ("n", "v")
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    _of_value: dict[str, str] = field(default_factory=dict)

    def path(self, path: Path) -> str:
        """`#n0.#n1[2]`."""
        shown = (f"[{part}]" if isinstance(part, int) else f".{self.name(part)}" for part in path.parts)
        return "".join(shown).removeprefix(".")

    def name(self, name: str) -> str:
        """The alias of one attribute name."""
        return self.names.setdefault(name, f"#{self.prefix[0]}{len(self.names)}")

    def value(self, typed: Mapping[str, Any]) -> str:
        """The placeholder of one value, given as typed JSON."""
        alias = self._of_value.setdefault(json.dumps(typed), f":{self.prefix[1]}{len(self._of_value)}")
        self.values[alias] = dict(typed)
        return alias

    def expression(self, text: str) -> Expression:
        """The finished expression. Names come out as DynamoDB wants them: alias to name."""
        return Expression(text, {alias: name for name, alias in self.names.items()}, self.values)


class _Writer(ABC):
    """What FilterExpression and PartiQL have in common; a subclass says how names and values look."""

    @abstractmethod
    def path(self, path: Path) -> str: ...

    @abstractmethod
    def value(self, value: Value) -> str: ...

    @abstractmethod
    def options(self, options: list[str]) -> str: ...

    @abstractmethod
    def presence(self, path: Path, present: bool) -> str: ...

    def node(self, node: Node) -> str:
        """The text of a condition, without parentheses around it."""
        match node:
            case And(terms):
                return " AND ".join(
                    f"({self.node(term)})" if isinstance(term, Or) else self.node(term) for term in terms
                )
            case Or(terms):
                return " OR ".join(self.node(term) for term in terms)
            case Not(Not(term)):
                return self.node(term)
            case Not(IsMissing(path)):
                return self.presence(path, present=True)
            case Not(term):
                return f"NOT ({self.node(term)})"
            case _:
                return self.leaf(node)

    def leaf(self, leaf: Leaf) -> str:  # noqa: PLR0911 - one return a kind of condition
        match leaf:
            case Comparison(left, operator, right):
                return f"{self.operand(left)} {operator} {self.operand(right)}"
            case Between(value, low, high):
                return f"{self.operand(value)} BETWEEN {self.value(low)} AND {self.value(high)}"
            case In(value, options):
                return f"{self.operand(value)} IN {self.options([self.value(option) for option in options])}"
            case BeginsWith(path, prefix):
                return self.function("begins_with", path, prefix)
            case Contains(path, part):
                return self.function("contains", path, part)
            case IsNull(path):
                return self.function("attribute_type", path, Value("S", "NULL"))
            case AttributeType(path, type_):
                return self.function("attribute_type", path, Value("S", type_))
            case IsMissing(path):
                return self.presence(path, present=False)

    def operand(self, operand: Operand) -> str:
        if isinstance(operand, Size):
            return f"size({self.path(operand.path)})"
        return self.value(operand) if isinstance(operand, Value) else self.path(operand)

    def function(self, name: str, path: Path, argument: Value) -> str:
        return f"{name}({self.path(path)}, {self.value(argument)})"


class ExpressionWriter(_Writer):
    """FilterExpression, ConditionExpression and KeyConditionExpression."""

    def __init__(self, aliases: Aliases) -> None:
        self.aliases = aliases

    def path(self, path: Path) -> str:
        return self.aliases.path(path)

    def value(self, value: Value) -> str:
        return self.aliases.value(value.typed)

    def options(self, options: list[str]) -> str:
        return f"({', '.join(options)})"

    def presence(self, path: Path, present: bool) -> str:
        return f"attribute_{'' if present else 'not_'}exists({self.path(path)})"


class StatementWriter(_Writer):
    """A PartiQL condition; its parameters gather in `parameters`, in the order of their `?`.

    In PartiQL at large a condition on a missing attribute is neither true nor false, and NOT leaves it so, whereas in
    a FilterExpression it is false (and `<>` true). Under a NOT every condition therefore also asks for the attribute,
    which makes it plainly false where that is missing: both readings then give what the FilterExpression gives.
    """

    def __init__(self) -> None:
        self.parameters: list[dict[str, Any]] = []
        self._negated = False

    def path(self, path: Path) -> str:
        shown = (f"[{part}]" if isinstance(part, int) else f".{quoted(part)}" for part in path.parts)
        return "".join(shown).removeprefix(".")

    def value(self, value: Value) -> str:
        self.parameters.append(value.typed)
        return "?"

    def options(self, options: list[str]) -> str:
        return f"[{', '.join(options)}]"

    def presence(self, path: Path, present: bool) -> str:
        return f"{self.path(path)} IS {'NOT ' if present else ''}MISSING"

    def node(self, node: Node) -> str:
        before, self._negated = self._negated, self._negated or isinstance(node, Not)
        text = super().node(node)
        self._negated = before
        return text

    def leaf(self, leaf: Leaf) -> str:
        match leaf:
            case Comparison(Path() as path, "=", Value(kind="NULL")):
                return self.leaf(IsNull(path))
            case Comparison(left, "<>", right):
                return self.node(Not(Comparison(left, "=", right)))
            case IsMissing():
                return super().leaf(leaf)
        text = super().leaf(leaf)
        return f"{self.presence(paths(leaf)[0], present=True)} AND {text}" if self._negated else text
