"""A map that is a function in the user's Python file. The file's text travels in the plan, pinned by its hash."""

import hashlib
import importlib.util
import inspect
import linecache
import sys
import threading
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from bulkexec import errors
from bulkexec.maps.base import BaseMap, MapFunction

DEFAULT_FUNCTION = "map_item"
MAX_FILE_BYTES = 1024 * 1024
"""A plan carries the text, and every worker reads the plan."""

_compiling = threading.Lock()


class Source(BaseMap, frozen=True):
    """`function` of a Python file with this `text`. `name` is the file's, without its folder, for tracebacks."""

    name: str
    function: str
    text: str
    sha256: str

    @property
    def in_place(self) -> bool:
        """A user's function may."""
        return True

    @property
    def identity(self) -> Any:
        """Text and function; a file may be renamed."""
        return (self.function, self.sha256)

    def compile(self) -> MapFunction:
        """The function; the file runs once in a process. Raises `errors.BadArgument` where it cannot be imported."""
        if _sha256(self.text) != self.sha256:
            raise errors.BadArgument(f"the text of {self.name} is not the one that was planned", fix="plan again")
        with _compiling:
            module = _module(self.name, self.text)
        found = getattr(module, self.function, None)
        if not callable(found):
            raise _no_function(self.name, self.function, module)
        function: MapFunction = found
        return function


def load(path_and_function: str) -> Source:
    """The map that `FILE.py` or `FILE.py:function` names.

    Without a function it is `map_item`, or the only public function that the file defines. The file is run once, to
    know that it can be. Raises `errors.BadArgument`.
    """
    path, function = _split(path_and_function)
    text = _read(path)
    module = _module(path.name, text)
    source = Source(path.name, function or _default(path.name, module), text, _sha256(text))
    _check_takes_one_item(source.name, source.function, source.compile())
    return source


def _split(path_and_function: str) -> tuple[Path, str]:
    whole = Path(path_and_function)
    path, colon, function = path_and_function.rpartition(":")
    if not colon or not function.isidentifier() or whole.is_file():
        return whole, ""
    return Path(path), function


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise errors.BadArgument(
                f"{path} is larger than {MAX_FILE_BYTES:,} bytes, the most a map may have",
                fix="keep data out of the map's file",
            )
        return importlib.util.decode_source(data)
    except OSError as error:
        fix = "name a Python file: --map FILE.py or --map FILE.py:function"
        raise errors.BadArgument(f"cannot read the map {path}: {error.strerror}", fix=fix) from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise errors.BadArgument(f"{path} is not Python text: {error}") from None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=64)
def _module(name: str, text: str) -> ModuleType:
    try:
        code = compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes
        at = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise errors.BadArgument(f"{name}{at}: {said}", fix="mend the map's file") from None
    module = ModuleType(f"bulkexec_map_{_sha256(text)[:12]}")
    module.__file__ = name
    # Dataclasses look their module up, and tracebacks show lines of a file that need not be on this machine.
    sys.modules[module.__name__] = module
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        exec(code, module.__dict__)  # noqa: S102 - running the user's file is what a map is
    except (Exception, SystemExit) as error:  # the user's code may raise anything; it is reported here
        del sys.modules[module.__name__]
        raise _not_importable(name, error) from error
    return module


def _not_importable(name: str, error: BaseException) -> errors.BadArgument:
    lines, step = [], error.__traceback__
    while step is not None:
        lines += [step.tb_lineno] if step.tb_frame.f_code.co_filename == name else []
        step = step.tb_next
    at = f", line {lines[-1]}" if lines else ""
    missing = isinstance(error, ImportError)
    return errors.BadArgument(
        f"{name}{at}: {type(error).__name__}: {error}",
        why="the map's file cannot be imported" + (" where it has to run" if missing else ""),
        fix="a map may import the standard library and what is installed there" if missing else "mend the map's file",
    )


def _public_functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _default(name: str, module: ModuleType) -> str:
    found = _public_functions(module)
    if callable(getattr(module, DEFAULT_FUNCTION, None)):
        return DEFAULT_FUNCTION
    if len(found) != 1:
        raise _no_function(name, DEFAULT_FUNCTION, module)
    return found[0]


def _no_function(name: str, function: str, module: ModuleType) -> errors.BadArgument:
    found = _public_functions(module)
    if not found:
        fix = f"define one: def {DEFAULT_FUNCTION}(item): return item"
    else:
        fix = "name one of its functions: " + ", ".join(f"{name}:{each}" for each in found)
    return errors.BadArgument(f"{name} has no function {function}", fix=fix)


def _check_takes_one_item(name: str, function: str, found: MapFunction) -> None:
    fix = f"write def {function}(item): and return a dict, or None to leave the item as it is"
    if inspect.isgeneratorfunction(found) or inspect.iscoroutinefunction(found):
        raise errors.BadArgument(f"{function} in {name} is a generator or async function, not a plain one", fix=fix)
    try:
        inspect.signature(found).bind({})
    except TypeError as error:
        raise errors.BadArgument(f"{function} in {name} does not take one item: {error}", fix=fix) from None
    except ValueError:  # something built in, which does not say what it takes
        return
