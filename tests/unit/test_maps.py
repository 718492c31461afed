"""Maps as values: compiled, sent as JSON, compared by fingerprint."""

import linecache
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bulkexec import maps
from bulkexec.codec import NotEncodable, StringSet
from bulkexec.errors import BadArgument


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: str | bytes, name: str = "clean.py") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


@dataclass(frozen=True)
class Holder:
    map: maps.Map
    other: maps.Map | None = None


def through_json(map_: maps.Map) -> maps.Map:
    """As a command's argument travels in a plan."""
    plan = msgspec.json.encode(msgspec.to_builtins(Holder(map_)))
    return msgspec.convert(msgspec.json.decode(plan), Holder).map


READY_MADE = [
    (maps.overlay(state="new", n=1), {"a": 1}, {"a": 1, "state": "new", "n": Decimal(1)}),
    (maps.overlay(tags=["x"], s={"a"}), {"tags": 0}, {"tags": ["x"], "s": StringSet("a")}),
    (maps.swap_prefix("pk", "a/", "b/"), {"pk": "a/1", "n": 1}, {"pk": "b/1", "n": 1}),
    (maps.swap_prefix("pk", "a/", "b/"), {"pk": "c/1"}, None),
    (maps.swap_prefix("pk", "a/", "b/"), {"pk": Decimal(1)}, None),
    (maps.swap_prefix("pk", "a/", "b/"), {}, None),
    (maps.rename("a", "b"), {"x": 1, "a": 2}, {"x": 1, "b": 2}),
    (maps.rename("a", "b"), {"b": 2}, {"b": 2}),
    (maps.drop("a"), {"a": 1, "b": 2}, {"b": 2}),
    (maps.drop("a"), {"b": 2}, {"b": 2}),
    (maps.compose(maps.rename("a", "b"), maps.drop("c")), {"a": 1, "c": 2}, {"b": 1}),
    (maps.compose(maps.swap_prefix("a", "x", "y"), maps.overlay(n=1)), {"a": "z"}, None),
    (maps.set_values(["n=1"], ["gone"], ["seen=2"]), {"gone": 1, "seen": Decimal(3)}, {"n": Decimal(1), "seen": 5}),
    (maps.set_values(adds=["seen=0.50"]), {}, {"seen": Decimal("0.50")}),
]


@pytest.mark.parametrize(("map_", "item", "wanted"), READY_MADE)
def test_ready_made(map_: maps.Map, item: dict[str, Any], wanted: Any) -> None:
    before = dict(item)
    for each in (map_, through_json(map_)):
        assert each.compile()(item) == wanted
        assert item == before
    assert through_json(map_) == map_
    assert through_json(map_).fingerprint == map_.fingerprint


def test_no_two_ready_made_maps_are_alike() -> None:
    different = {msgspec.json.encode(map_): map_.fingerprint for map_, _, _ in READY_MADE}
    assert len(set(different.values())) == len(different)
    assert maps.rename("a", "b").fingerprint != maps.rename("b", "a").fingerprint


def test_a_renamed_attribute_never_replaces_another() -> None:
    with pytest.raises(ValueError, match="cannot rename a to b: the item has both"):
        maps.rename("a", "b").compile()({"a": 1, "b": 2})


def test_overlaid_lists_are_not_shared_between_items() -> None:
    function = maps.compose(maps.overlay(tags=["x"]), lambda item: item["tags"].append("y") or item).compile()
    assert [function({})["tags"], function({})["tags"]] == [["x", "y"], ["x", "y"]]


def test_an_overlay_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(NotEncodable, match="NaN"):
        maps.overlay(n=float("nan"))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=1", "a", Decimal(1)),
        ("a=1.50", "a", Decimal("1.50")),
        ("a=11888647184542023637", "a", Decimal("11888647184542023637")),  # case C007
        ("a=x", "a", "x"),
        ("a=", "a", ""),
        ("a='1'", "a", "1"),
        ("a='it's'", "a", "it's"),
        ('a="1"', "a", "1"),
        ("a=true", "a", True),
        ("a=null", "a", None),
        ("a=True", "a", "True"),
        ("a=NaN", "a", "NaN"),
        ("a=-Infinity", "a", "-Infinity"),
        ("a=007", "a", "007"),
        ("a=[]", "a", []),  # case C015
        ('a={"b": [1, 2.0]}', "a", {"b": [Decimal(1), Decimal("2.0")]}),
        ("a=b=c", "a", "b=c"),
        ('"a.b"=1', "a.b", Decimal(1)),
        ('"a=b"=1', "a=b", Decimal(1)),
        ('"say ""hi"""=1', 'say "hi"', Decimal(1)),
        ("größe=1", "größe", Decimal(1)),
        ("1e999999999999999999999=x", "1e999999999999999999999", "x"),
        ("a=1e999999999999999999999", "a", "1e999999999999999999999"),
    ],
)
def test_a_value_as_it_is_written(text: str, name: str, value: Any) -> None:
    changed = maps.set_values([text]).compile()({})
    assert changed == {name: value}
    assert type(changed[name]) is type(value)
    assert str(changed[name]) == str(value)


@pytest.mark.parametrize(
    ("sets", "removes", "adds", "message"),
    [
        ([], [], [], "nothing to set"),
        (["a"], [], [], "no equals sign"),
        (["=1"], [], [], "no attribute name"),
        (["a=1", "a=2"], [], [], "--set has a twice"),
        (["a=1"], ["a"], [], "a is both"),
        (["a=1"], [], ["a=1"], "a is both"),
        ([], ["a"], ["a=1"], "a is both"),
        ([], [""], [], "no attribute name"),
        ([], ["a", "a"], [], "--remove has a twice"),
        ([], ["a[0]"], [], "only top-level"),
        (["address.city=Bern"], [], [], "only top-level"),
        ([], [], ["a=x"], "'x' is no number"),
        ([], [], ["a=NaN"], "'NaN' is no number"),
        ([], [], ["a=1E+126"], "is no number"),
        (["a=" + "1" * 39], [], [], "--set a: 1{39} has 39 significant digits"),
        (["a=" + "[" * 40 + "1E400" + "]" * 40], [], [], "out of range"),
    ],
)
def test_what_cannot_be_set_is_refused(sets: list[str], removes: list[str], adds: list[str], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        maps.set_values(sets, removes, adds)


def test_adding_is_exact_or_fails() -> None:
    add = maps.set_values(adds=["n=0.1"]).compile()
    assert str(add({"n": Decimal("0.2")})["n"]) == "0.3"
    with pytest.raises(ValueError, match="more than DynamoDB's 38 digits"):
        add({"n": Decimal("1E+100")})
    with pytest.raises(ValueError, match=r"cannot add 0\.1 to n: it is no number"):
        add({"n": "5"})


FILE = '''"""A user's map."""
import re
from dataclasses import dataclass

@dataclass
class Part:
    text: "str"

def _hidden(item):
    return item

def shorten(item):
    item["name"] = Part(re.sub(r" +", " ", item["name"])).text
    return item
'''


def test_the_only_public_function_of_a_file(write: Callable[..., Path]) -> None:
    source = maps.load(str(write(FILE)))
    assert (source.name, source.function, source.text) == ("clean.py", "shorten", FILE)
    assert through_json(source) == source
    assert through_json(source).compile()({"name": "a  b"}) == {"name": "a b"}


def test_map_item_is_the_default_and_any_other_can_be_named(write: Callable[..., Path]) -> None:
    path = write("from re import sub\ndef other(item): return None\nmap_item = lambda item: {**item, 'x': 1}\n")
    assert maps.load(str(path)).function == "map_item"
    assert maps.load(f"{path}:other").compile()({}) is None
    assert maps.load(f"{path}:other").fingerprint != maps.load(str(path)).fingerprint


def test_a_file_is_known_by_its_text(write: Callable[..., Path]) -> None:
    one, two, three = (
        write("def f(item): pass\n"),
        write("def f(item): pass\n", "b.py"),
        write("def f(i): pass\n", "c.py"),
    )
    assert maps.load(str(one)).fingerprint == maps.load(str(two)).fingerprint != maps.load(str(three)).fingerprint


def test_a_text_that_is_not_the_planned_one_is_not_run(write: Callable[..., Path]) -> None:
    source = maps.load(str(write("def f(item): pass\n")))
    with pytest.raises(BadArgument, match=r"the text of clean.py is not the one that was planned"):
        msgspec.structs.replace(source, text="def f(item): return {}\n").compile()


def test_a_file_runs_once_in_a_process(write: Callable[..., Path], tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = maps.load(str(write(f"with open({str(log)!r}, 'a') as log: log.write('x')\ndef f(item): pass\n")))
    assert source.compile() is through_json(source).compile()
    assert log.read_text() == "x"


def test_a_traceback_shows_the_users_file_where_that_is_not(write: Callable[..., Path], tmp_path: Path) -> None:
    source = maps.load(str(write("def f(item):\n    return item['missing']\n")))
    (tmp_path / "source.json").write_bytes(msgspec.json.encode(source))
    (tmp_path / "clean.py").unlink()
    elsewhere = (
        "import msgspec, sys, traceback\n"
        "from bulkexec import maps\n"
        "source = msgspec.json.decode(open(sys.argv[1], 'rb').read(), type=maps.Map)\n"
        "try:\n    source.compile()({})\nexcept KeyError:\n    print(traceback.format_exc())\n"
    )
    command = [sys.executable, "-c", elsewhere, str(tmp_path / "source.json")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "File \"clean.py\", line 2, in f\n    return item['missing']" in shown


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("def f(item):\n    return (\n", "", r"clean.py, line 2: '\(' was never closed"),
        ("import no_such_module\n", "", "clean.py, line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1\n\ny = 1 / 0\n", "", "clean.py, line 3: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "", "clean.py, line 1: SystemExit: 3"),
        ("def f(item): pass\n", "g", "clean.py has no function g"),
        ("f = 3\n", "f", "clean.py has no function f"),
        ("", "", "clean.py has no function map_item"),
        ("def f(i): pass\ndef g(i): pass\n", "", "clean.py has no function map_item"),
        ("def f(): pass\n", "", "f in clean.py does not take one item"),
        ("def f(a, b): pass\n", "", "f in clean.py does not take one item: missing a required argument: 'b'"),
        ("async def f(item): pass\n", "", "generator or async"),
        ("def f(item): yield item\n", "", "generator or async"),
        ("# " + "x" * 1024 * 1024, "", "is larger than"),
        (b"\xff\xfe", "", "is not Python text"),
        (b"def f(item): pass\n\x00", "", "null bytes"),
    ],
)
def test_a_map_that_cannot_run_is_refused(
    write: Callable[..., Path], text: str | bytes, function: str, message: str
) -> None:
    path = str(write(text))
    with pytest.raises(BadArgument, match=message):
        maps.load(f"{path}:{function}" if function else path)


def test_functions_to_choose_from_are_listed(write: Callable[..., Path]) -> None:
    with pytest.raises(BadArgument) as caught:
        maps.load(str(write("def f(i): pass\ndef g(i): pass\n")))
    assert caught.value.fix == "name one of its functions: clean.py:f, clean.py:g"


@pytest.mark.parametrize("name", ["missing.py", "missing.py:f", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadArgument, match="cannot read the map"):
        maps.load(str(tmp_path / name))


def adding(n: int, tag: str = "x") -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda item, tag=tag: {**item, "n": n, "tag": tag}


class Adder:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "n": self.n}

    def map(self, item: dict[str, Any]) -> dict[str, Any]:
        return self(item)


def plus(n: int, item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "n": n}


def test_a_callable_of_this_process() -> None:
    map_ = maps.Local(adding(1))
    assert map_.compile()({}) == {"n": 1, "tag": "x"}
    assert maps.as_map(map_) is map_
    assert maps.as_map(adding(1)) == map_
    with pytest.raises(BadArgument, match=r"adding.<locals>.<lambda> is a function of another process"):
        through_json(map_).compile()
    assert through_json(map_).fingerprint == map_.fingerprint


SAME = [
    (lambda: adding(1), lambda: adding(2)),
    (lambda: adding(1), lambda: adding(1, "y")),
    (lambda: Adder(1), lambda: Adder(2)),
    (lambda: Adder(1).map, lambda: Adder(2).map),
    (lambda: partial(plus, 1), lambda: partial(plus, 2)),
    (lambda: [lambda item: None, lambda item: {"a": 1}][0], lambda: [lambda item: None, lambda item: {"a": 1}][1]),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_a_callable_is_known_by_what_it_does(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    assert maps.Local(one()).fingerprint == maps.Local(one()).fingerprint
    assert maps.Local(one()).fingerprint != maps.Local(other()).fingerprint


@pytest.mark.parametrize("source_of_another", [False, True])
def test_a_callable_without_source_is_known_by_its_code(
    source_of_another: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source_of_another:  # as `python -c` leaves it from Python 3.13 on
        lines = ["def f(other):\n", "    return other\n"]
        monkeypatch.setitem(linecache.cache, "<string>", (len(lines), None, lines, "<string>"))

    def made(text: str) -> Any:
        space: dict[str, Any] = {}
        exec(text, space)
        return space["f"]

    text = "def f(item):\n    return {**item, 'n': 1}\n"
    assert maps.Local(made(text)).fingerprint == maps.Local(made(text)).fingerprint
    assert maps.Local(made(text)).fingerprint != maps.Local(made(text.replace("1", "2"))).fingerprint
    assert maps.Local(len).fingerprint != maps.Local(str).fingerprint


def test_a_fingerprint_is_the_same_in_another_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from bulkexec import maps\n"
        "def made(names, loop=None):\n    def f(item):\n        return f if names else loop\n    return f\n"
        "print(maps.Local(made({'a', 'b', 'c', 'd'}, object())).fingerprint)\n"
    )
    shown = [subprocess.check_output([sys.executable, str(program)], text=True) for _ in range(3)]
    assert len(set(shown)) == 1
    assert len(shown[0].strip()) == 16


def test_errors_of_a_map_are_the_items() -> None:
    def raising(item: dict[str, Any]) -> None:
        raise KeyError("name")

    with pytest.raises(KeyError) as caught:
        maps.compose(maps.drop("a"), raising).compile()({})
    assert "raising" in "".join(traceback.format_tb(caught.value.__traceback__))
