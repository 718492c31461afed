"""A map that is a Python callable of this process, for the Python API."""

import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from decimal import Decimal
from types import CodeType, FunctionType, MethodType
from typing import Any

import msgspec

from bulkexec import errors
from bulkexec.maps.base import BaseMap, MapFunction


class Local(BaseMap, frozen=True, dict=True):
    """`Local(function)`. In a plan only its name and fingerprint are kept, so it works in this process alone."""

    function: Any
    """Given: the callable. Kept: its qualified name."""
    sha256: str = ""

    def __post_init__(self) -> None:
        if callable(self.function):
            self.__dict__["callable"] = self.function
            msgspec.structs.force_setattr(self, "sha256", _digest(self.function))
            name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
            msgspec.structs.force_setattr(self, "function", name)

    @property
    def in_place(self) -> bool:
        """A user's function may."""
        return True

    @property
    def identity(self) -> Any:
        """What the function does, whatever it is called."""
        return self.sha256

    def compile(self) -> MapFunction:
        """The callable itself. Raises `errors.BadArgument` in another process, which does not have it."""
        function: MapFunction | None = self.__dict__.get("callable")
        if function is None:
            raise errors.BadArgument(
                f"the map {self.function} is a function of another process",
                fix="start from that program again, or give the map as a file: --map FILE.py:function",
            )
        return function


def _digest(function: Callable[..., Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(_description(function, ()))).hexdigest()


def _description(value: Any, outer: tuple[int, ...]) -> Any:  # noqa: PLR0911 - one return a kind of value
    """What a value is, without addresses and the like; plain ones by value, functions by source, others by type."""
    if value is None or isinstance(value, bool | int | float | str | bytes | Decimal):
        return [type(value).__name__, repr(value)]
    if id(value) in outer:
        return "recursive"
    outer = (*outer, id(value))
    inner = functools.partial(_description, outer=outer)
    match value:
        case list() | tuple():
            return [inner(each) for each in value]
        case dict():
            return ["dict", *([inner(name), inner(each)] for name, each in value.items())]
        case set() | frozenset():
            return ["set", *sorted(map(repr, map(inner, value)))]
        case functools.partial():
            return ["partial", *map(inner, (value.func, value.args, value.keywords))]
        case MethodType():
            return ["method", inner(value.__func__), inner(value.__self__)]
        case FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            return ["function", _text(value), *map(inner, (cells, value.__defaults__, value.__kwdefaults__))]
        case type():
            return ["class", _text(value)]
    if callable(value) and not inspect.isbuiltin(value):
        return ["callable", _text(type(value)), inner(getattr(value, "__dict__", None))]
    return ["other", getattr(value, "__qualname__", type(value).__qualname__)]


def _filled(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents) or True
    except ValueError:  # of a name that has no value yet
        return False


def _text(function: Any) -> Any:
    """Its source, which is the same in every version of Python; without one, what its code names and holds."""
    code: CodeType | None = getattr(function, "__code__", None)
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return [function.__qualname__, _constants(code)]
    # The source of a lambda is all of its line: two in one line have to be told apart by what they hold. What comes
    # from no file may get another text's lines: from Python 3.13 on, "<string>" is the program of `python -c` as well.
    no_file = code is not None and code.co_filename.startswith("<")
    return [source, _constants(code) if no_file or source.count("lambda") > 1 else None]


def _constants(code: CodeType | None) -> Any:
    if code is None:
        return None
    held = [_constants(each) if isinstance(each, CodeType) else _description(each, ()) for each in code.co_consts]
    return [held, code.co_names, code.co_varnames[: code.co_argcount]]
