"""`--set name=value`, `--remove name`, `--add name=n`."""

import json
import re
from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from bulkexec import errors
from bulkexec.codec import NotEncodable, value_from_python
from bulkexec.maps.base import BaseMap, MapFunction
from bulkexec.maps.ready_made import values_of

_EXACT = Context(prec=38, traps=[Inexact, InvalidOperation, Overflow])
_QUOTED_NAME = re.compile(r'"((?:[^"]|"")+)"(?:=(.*))?', re.DOTALL)


class SetValues(BaseMap, frozen=True):
    """Sets attributes to typed values, removes some, and adds to numbers; an absent one counts as 0.

    Adding is the one map that does not give the same when it is done again: after a sudden death up to one checkpoint
    interval of pages is, unless the table has a version field.
    """

    sets: dict[str, dict[str, Any]] = {}
    removes: tuple[str, ...] = ()
    adds: dict[str, str] = {}

    def compile(self) -> MapFunction:
        """The function. It raises ValueError where there is something to add to that is not a number."""
        values, removes = values_of(self.sets), self.removes
        adds = {name: Decimal(number) for name, number in self.adds.items()}

        def assigned(item: dict[str, Any]) -> dict[str, Any]:
            changed = item | values()
            for name in removes:
                changed.pop(name, None)
            for name, number in adds.items():
                changed[name] = _sum(name, changed.get(name, Decimal(0)), number)
            return changed

        return assigned


def _sum(name: str, value: Any, number: Decimal) -> Decimal:
    if not isinstance(value, Decimal):
        raise ValueError(f"cannot add {number} to {name}: it is no number")
    try:
        return _EXACT.add(value, number)
    except (Inexact, Overflow):
        raise ValueError(f"cannot add {number} to {name}: the sum has more than DynamoDB's 38 digits") from None


def set_values(sets: Iterable[str] = (), removes: Iterable[str] = (), adds: Iterable[str] = ()) -> SetValues:
    """The map that options say. Raises `errors.BadArgument`.

    `sets` are `name=value`: a value that is JSON is what it says (numbers exactly), one in single quotes is the text
    within, anything else is text as it stands. `adds` are `name=number`. A name is a top-level attribute's; one with a
    dot, bracket or equals sign in it stands in double quotes.
    """
    found = SetValues(
        _unique("--set", [_set(text) for text in sets]),
        tuple(_unique("--remove", [(_name("--remove", text), None) for text in removes])),
        _unique("--add", [_add(text) for text in adds]),
    )
    for name in found.sets.keys() & {*found.removes, *found.adds} | (set(found.removes) & found.adds.keys()):
        raise errors.BadArgument(f"{name} is both set and removed or added to", fix="say one thing about an attribute")
    if not (found.sets or found.removes or found.adds):
        raise errors.BadArgument("nothing to set, remove or add", fix="give --set name=value")
    return found


def _unique(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise errors.BadArgument(f"{option} has {twice} twice", fix="say one thing about an attribute")
    return found


def _set(text: str) -> tuple[str, dict[str, Any]]:
    name, value = _pair("--set", text)
    try:
        return name, value_from_python(_value(value))
    except NotEncodable as error:
        raise errors.BadArgument(f"--set {name}: {error}") from None


def _value(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_no_json)
    except (ValueError, InvalidOperation, RecursionError):
        return text


def _no_json(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _add(text: str) -> tuple[str, str]:
    name, number = _pair("--add", text)
    try:
        return name, str(value_from_python(Decimal(number))["N"])
    except (InvalidOperation, NotEncodable):
        raise errors.BadArgument(f"--add {name}: {number!r} is no number", fix="write --add visits=1") from None


def _pair(option: str, text: str) -> tuple[str, str]:
    quoted = _QUOTED_NAME.fullmatch(text)
    if quoted and quoted[2] is not None:
        return quoted[1].replace('""', '"'), quoted[2]
    name, sign, value = text.partition("=")
    if not sign:
        raise errors.BadArgument(f"{option} {text} has no equals sign", fix=f"write {option} name=value")
    return _name(option, name), value


def _name(option: str, text: str) -> str:
    quoted = _QUOTED_NAME.fullmatch(text)
    if quoted and quoted[2] is None:
        return quoted[1].replace('""', '"')
    name = text.strip()
    if not name:
        raise errors.BadArgument(f"{option} has no attribute name", fix=f"write {option} status …")
    if re.search(r'[.\[\]"]', name):
        fix = f"if that is the attribute's whole name: {option} '\"{name}\"…'; else use --update-expression or --map"
        raise errors.BadArgument(f"{option} {name}: only top-level attributes can be named here", fix=fix)
    return name
