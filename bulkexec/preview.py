"""What would become of a sample of items, attribute by attribute, for people to see before anything is written."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bulkexec.codec import NotEncodable, value_from_python
from bulkexec.command import Change
from bulkexec.console import WIDTH, Terminal


def say_trial(terminal: Terminal, changes: tuple[Change, ...], keys: tuple[str, ...], in_full: bool) -> None:
    """A line on the sample, and with `in_full` each item's difference."""
    if not changes:
        return
    failing = [change for change in changes if change.problem]
    changed = sum(change.after is not None for change in changes)
    let_be = len(changes) - changed - len(failing)
    words = f"tried on {len(changes)} items: {changed} changed, {let_be} let be, {len(failing)} failed"
    terminal.say(f"  {'Sample':<12} {words}")
    for change in changes if in_full else failing[:1]:
        for line in _lines(change, keys):
            terminal.say(line if len(line) <= WIDTH else f"{line[: WIDTH - 2]} …")
    terminal.say()


def _lines(change: Change, keys: tuple[str, ...]) -> Iterator[str]:
    name = ", ".join(f"{key}={shown(change.before.get(key))}" for key in keys)
    if change.problem:
        yield f"    {name}   fails: {change.problem}"
    elif change.after is None:
        yield f"    {name}   let be"
    else:
        yield f"    {name}"
        yield from _difference(change.before, change.after)


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        old, new = (shown(item[name]) if name in item else None for item in (before, after))
        if old == new:
            continue
        if old is not None:
            yield f"      - {name}: {old}"
        if new is not None:
            yield f"      + {name}: {new}"


def shown(value: Any) -> str:
    """A value in few characters: text in quotes, numbers and booleans bare, all else as typed JSON."""
    try:
        typed = value_from_python(value)
    except NotEncodable as error:
        return f"({error})"
    ((kind, content),) = typed.items()
    if kind == "S":
        return msgspec.json.encode(content).decode()
    return (
        str(content).lower() if kind == "BOOL" else str(content) if kind == "N" else msgspec.json.encode(typed).decode()
    )
