"""The expression tree of a filter.

Every node is frozen and compares by value. The tree is kept canonical by whoever builds it (`where.sql`): And and Or
never hold a node of their own kind, a comparison has an attribute on its left, and values are literals.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from bulkexec.model import KeyAttribute

Operator = Literal["=", "<>", "<", "<=", ">", ">="]
Kind = Literal["S", "N", "B", "BOOL", "NULL"]


@dataclass(frozen=True)
class Path:
    """A document path: attribute names, and list indexes as int."""

    parts: tuple[str | int, ...]

    def __str__(self) -> str:
        shown = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.parts)
        return "".join(shown).removeprefix(".")


@dataclass(frozen=True)
class Value:
    """A literal: the exact text of a string or number, base64 of binary, "true" or "false", "" for NULL."""

    kind: Kind
    text: str

    @property
    def typed(self) -> dict[str, Any]:
        """The value as DynamoDB-typed JSON."""
        if self.kind == "BOOL":
            return {"BOOL": self.text == "true"}
        return {"NULL": True} if self.kind == "NULL" else {self.kind: self.text}

    @property
    def order(self) -> Any:
        """Sorts as DynamoDB sorts values of this kind (strings by UTF-8 bytes)."""
        if self.kind == "N":
            return Decimal(self.text)
        return base64.b64decode(self.text) if self.kind == "B" else self.text.encode()

    def __str__(self) -> str:
        """The literal as it is written in a filter."""
        if self.kind == "S":
            return "'" + self.text.replace("'", "''") + "'"
        if self.kind == "B":
            return f"X'{base64.b64decode(self.text).hex().upper()}'"
        return self.text.upper() if self.kind == "BOOL" else self.text or "NULL"


_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)


def is_number(text: str) -> bool:
    """Whether DynamoDB can hold the number: at most 38 significant digits, magnitude 1E-130 to 9.99E+125."""
    if not _NUMBER.fullmatch(text):
        return False
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent beyond what even Decimal holds
        return False
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")
    return not digits or (len(digits) <= 38 and -130 <= number.adjusted() <= 125)


@dataclass(frozen=True)
class Size:
    """size(path): length of a string, bytes of binary, members of a set, list or map."""

    path: Path

    def __str__(self) -> str:
        return f"size({self.path})"


Operand = Path | Size | Value


@dataclass(frozen=True)
class Comparison:
    """left operator right."""

    left: Path | Size
    operator: Operator
    right: Operand


@dataclass(frozen=True)
class Between:
    """low <= value <= high, the bounds of one kind and in order."""

    value: Path | Size
    low: Value
    high: Value


@dataclass(frozen=True)
class In:
    """The value equals one of at most 100 options."""

    value: Path | Size
    options: tuple[Value, ...]


@dataclass(frozen=True)
class BeginsWith:
    """LIKE 'x%'."""

    path: Path
    prefix: Value


@dataclass(frozen=True)
class Contains:
    """LIKE '%x%': a substring of a string, or a member of a set or list."""

    path: Path
    part: Value


@dataclass(frozen=True)
class IsNull:
    """The attribute is there and holds NULL."""

    path: Path


@dataclass(frozen=True)
class IsMissing:
    """The item has no such attribute."""

    path: Path


@dataclass(frozen=True)
class AttributeType:
    """The attribute is of a type: S, SS, N, NS, B, BS, BOOL, L or M (NULL is `IsNull`)."""

    path: Path
    type: str


@dataclass(frozen=True)
class And:
    """Every term holds; two terms or more."""

    terms: tuple["Node", ...]


@dataclass(frozen=True)
class Or:
    """One of the terms holds; two terms or more."""

    terms: tuple["Node", ...]


@dataclass(frozen=True)
class Not:
    """The term does not hold. True, therefore, where the attribute is missing."""

    term: "Node"


Leaf = Comparison | Between | In | BeginsWith | Contains | IsNull | IsMissing | AttributeType
Node = Leaf | And | Or | Not


def leaves(node: Node) -> Iterator[Leaf]:
    """Every condition of the tree, from left to right."""
    match node:
        case And(terms) | Or(terms):
            for term in terms:
                yield from leaves(term)
        case Not(term):
            yield from leaves(term)
        case _:
            yield node


def paths(leaf: Leaf) -> tuple[Path, ...]:
    """The attributes a condition looks at."""
    if isinstance(leaf, Comparison):
        sides = (leaf.left, leaf.right)
        return tuple(side.path if isinstance(side, Size) else side for side in sides if not isinstance(side, Value))
    if isinstance(leaf, Between | In):
        return (leaf.value.path if isinstance(leaf.value, Size) else leaf.value,)
    return (leaf.path,)


def mentions(node: Node, keys: tuple[KeyAttribute, ...]) -> bool:
    """Whether a condition of the tree looks at one of these keys."""
    names = {key.name for key in keys}
    return any(path.parts[0] in names for leaf in leaves(node) for path in paths(leaf))


def operators(node: Node) -> int:
    """Operators and functions, as DynamoDB counts them towards its limit of 300."""
    match node:
        case And(terms) | Or(terms):
            return len(terms) - 1 + sum(operators(term) for term in terms)
        case Not(term):
            return 1 + operators(term)
        case Comparison(left, _, right):
            return 1 + isinstance(left, Size) + isinstance(right, Size)
        case Between(value, _, _) | In(value, _):
            return 1 + isinstance(value, Size)
        case _:
            return 1


def quoted(name: str) -> str:
    """A name in double quotes, those within doubled: SQL's and PartiQL's way."""
    return '"' + name.replace('"', '""') + '"'
