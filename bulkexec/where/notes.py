"""What may surprise the writer of a filter."""

from collections.abc import Iterator

from bulkexec.model import KeyAttribute
from bulkexec.where.tree import And, Comparison, IsMissing, Node, Not, Or, Path, leaves, paths


def notes(node: Node, table_keys: tuple[KeyAttribute, ...] = ()) -> tuple[str, ...]:
    """What may surprise the writer of the filter, as sentences for the plan. Keys are never missing."""
    present = frozenset(Path((key.name,)) for key in table_keys)
    return tuple(dict.fromkeys([*_compared(node), *_matching_missing(node, present, negated=False)]))


def _compared(node: Node) -> Iterator[str]:
    for leaf in leaves(node):
        if len(paths(leaf)) > 1:
            left, right = paths(leaf)
            yield f"compares the attributes {left} and {right}; text would stand in single quotes"


def _matching_missing(node: Node, present: frozenset[Path], negated: bool) -> Iterator[str]:
    """Conditions that hold for items without the attribute, unless the filter asks for it elsewhere."""
    match node:
        case And(terms) | Or(terms):
            if isinstance(node, And) and not negated:
                present |= {path for term in terms for path in _proven(term)}
            for term in terms:
                yield from _matching_missing(term, present, negated)
        case Not(term):
            yield from _matching_missing(term, present, not negated)
        case IsMissing():
            return
        case _:
            unequal = isinstance(node, Comparison) and node.operator == "<>"
            if unequal != negated and paths(node)[0] not in present:
                yield f"{'<>' if unequal else 'NOT'} also matches items without {paths(node)[0]}"


def _proven(term: Node) -> tuple[Path, ...]:
    """Attributes that are there whenever the term holds."""
    match term:
        case Not(IsMissing(path)):
            return (path,)
        case And() | Or() | Not() | IsMissing() | Comparison(operator="<>"):
            return ()
    return paths(term)
