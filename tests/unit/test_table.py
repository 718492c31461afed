"""The Python API without a service: types, what it imports, its keywords and its results."""

import json
import subprocess
import sys
import textwrap
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import bulkexec
from bulkexec import MassOpResult, decode_cursor, errors, maps
from bulkexec.command import Command, arguments_of
from bulkexec.commands.copy import Copy
from bulkexec.commands.delete import Delete
from bulkexec.commands.edit import Edit
from bulkexec.cursor import Cursor
from bulkexec.declarations import Declarations
from bulkexec.keywords import filter_of, in_python, in_python_terms
from bulkexec.model import KeyAttribute, Scope, Work
from bulkexec.model import Table as TableFacts
from bulkexec.plan import Plan
from bulkexec.results import ConflictItem, FailedItem

ROOT = Path(__file__).parents[2]

# What pip installs with `pip install bulkexec`: its dependencies and theirs.
BASE = (
    "boto3 botocore s3transfer jmespath dateutil six urllib3 msgspec sqlglot "
    "click rich pygments markdown_it mdurl certifi"
)

ISOLATED = """
import sys, sysconfig
allowed = set({base!r}.split()) | {{"bulkexec"}}
standard = set(sys.stdlib_module_names) | {{"_virtualenv", "sitecustomize", "usercustomize"}}

class Others:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed | standard:
            raise ModuleNotFoundError(f"{{name}} is not in the base install", name=name)

for name in [each for each in sys.modules if each.partition(".")[0] not in allowed | standard]:
    del sys.modules[name]
sys.meta_path.insert(0, Others())
{code}
"""


def isolated(code: str) -> str:
    """What a program prints that has the base install alone."""
    program = ISOLATED.format(base=BASE, code=textwrap.dedent(code))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_api_needs_the_base_install_alone() -> None:
    code = """
        from bulkexec import Table, MassOpResult, decode_cursor, maps
        try:
            import pyspark
        except ModuleNotFoundError as error:
            print(error)
        """
    assert isolated(code) == "pyspark is not in the base install\n"


def test_what_is_heavy_or_of_the_command_line_is_not_imported() -> None:
    heavy = ("sqlglot", "rich", "click", "boto3.dynamodb", "asyncio", "multiprocessing", "xml.etree", "bulkexec.main")
    code = f"""
        import boto3
        boto3.Session("a", "b", region_name="us-east-1").client("dynamodb")
        before = set(sys.modules)
        from bulkexec import Table, maps
        Table("t", session=boto3.Session("a", "b", region_name="us-east-1"))
        print([each for each in {heavy!r} if each in sys.modules and each not in before])
        """
    assert isolated(code) == "[]\n"


def test_the_package_says_that_it_is_typed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    assert "bulkexec/py.typed" in zipfile.ZipFile(wheel).namelist()


PROGRAM = """
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from boto3.dynamodb.conditions import Attr

from bulkexec import MassOpResult, Table, decode_cursor, maps


def done(item: dict[str, Any]) -> dict[str, Any] | None:
    return None if "done" in item else item | {"done": True}


def event(token: str | None) -> dict[str, Any]:
    table = Table("customers", version_field="-version", searchable=["name", "mail"])
    result: MassOpResult = table.edit_list(done, max_items=5000, resume_token=token)
    result = result + table.edit_by_keys([each["key"] for each in result.conflicts], done)
    for failed in result.failed:
        reason: str = failed["reason"] + failed["details"]
    cursor: str | None = result.cursor
    return result.as_json()


table = Table("orders")
table.delete_list(filter=["status:eq:OLD", ("total", "ge", Decimal("9.5"))], write_rate="30%")
table.delete_list(all_items=True, params={"FilterExpression": Attr("n").eq(1)}, dry_run=True)
table.clone_list(to="other", if_not_exists=True)
table.move_list(maps.swap_prefix("pk", "a", "b"), where="begins_with(pk, 'a')", stop=lambda: False)
table.put_items([{"pk": "a"}], if_exists=True)
decode_cursor("x").segments
"""
WRONG = {
    "table.edit_list(done, max_item=5)\n": "max_item",
    "table.delete_list(if_not_exists=True)\n": "if_not_exists",
    'table.edit_by_keys([{"pk": "a"}], done, where="a = 1")\n': "where",
    "table.edit_list(lambda item: 5)\n": "incompatible",
    'table.edit_list(done, max_items="5")\n': "max_items",
    'Table("t", versionfield="v")\n': "versionfield",
}


def test_a_strict_type_checker_takes_what_is_right_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + "".join(WRONG))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    done = subprocess.run(
        [*command, str(tmp_path / "program.py")], capture_output=True, text=True, check=False, cwd=ROOT
    )
    found = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if ": error: " in line]
    first = len(PROGRAM.splitlines()) + 1
    numbers = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line]
    assert sorted(set(numbers)) == list(range(first, first + len(WRONG))), done.stdout
    for word in WRONG.values():
        assert any(word in each for each in found), done.stdout


def test_the_names_that_are_public_are_there() -> None:
    for name in bulkexec.__all__:
        assert getattr(bulkexec, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        bulkexec.nothing  # noqa: B018


# -- tokens --------------------------------------------------------------------------------------------------------

ORDERS = TableFacts(
    "orders",
    "arn:aws:dynamodb:eu-west-1:111122223333:table/orders",
    "eu-west-1",
    "111122223333",
    (KeyAttribute("pk", "S"),),
    "ACTIVE",
    10,
    5000,
    "on-demand",
    id="6f1c",
)


def fingerprint(command: Command, **options: Any) -> str:
    declared = Declarations(created_at_field="created", searchable=("name", "mail"))
    chosen = filter_of("orders", options, declared)
    arguments = arguments_of(command.prepare())
    return Plan(command.name, arguments, Work(Scope(ORDERS)), 4, True, where=chosen.text).fingerprint


def test_tokens_of_this_minor_version_fit_later_ones() -> None:
    """These were given out by 0.1. Whoever changes one makes every cursor out there refused."""
    clauses = ["status:eq:OLD", ("total", "ge", Decimal("9.5"))]
    edit = Edit(transform=maps.overlay(done=True), version_field="-version")
    copy = Copy(to="other", if_not_exists=True, transform=maps.swap_prefix("pk", "a", "b"))
    assert fingerprint(Delete(all=True)) == "32592673cca97136"
    assert fingerprint(edit, filter=clauses, as_of="2026-01-01") == "4ba12c6e73f417df"
    assert fingerprint(copy, where="n < 5", search="ada") == "e9c48312ae312987"
    assert decode_cursor(FROM_0_1) == Cursor("4ba12c6e73f417df", 4, ((0, 1),), {3: '{"pk":{"S":"a"}}'})


FROM_0_1 = (
    "eyJmaW5nZXJwcmludCI6IjRiYTEyYzZlNzNmNDE3ZGYiLCJzZWdtZW50cyI6NCwiZG9uZSI6W1swLDFdXSwib3BlbiI6eyIz"
    "Ijoie1wicGtcIjp7XCJTXCI6XCJhXCJ9fSJ9LCJqb2IiOiIiLCJ2ZXJzaW9uIjoxLCJoZWxkIjp7fX0"
)


# -- results -------------------------------------------------------------------------------------------------------


def test_a_result_is_json_whatever_its_keys_are() -> None:
    key = {"pk": b"\xff", "sk": Decimal("1E+30")}
    result = MassOpResult(
        1, 2, [FailedItem(key=key, reason="r", details="d")], [ConflictItem(key=key, reason="VersionConflict")], "token"
    )
    document = json.loads(json.dumps(result.as_json()))
    assert document["failed"] == [{"key": {"pk": {"B": "/w=="}, "sk": {"N": "1E+30"}}, "reason": "r", "details": "d"}]
    assert document["conflicts"][0]["key"] == document["failed"][0]["key"]
    assert (document["processed"], document["skipped"], document["cursor"]) == (1, 2, "token")


def test_results_add_up_and_the_later_cursor_counts() -> None:
    one = MassOpResult(1, 2, [], [], "first", 3, 3, 0.5, 1.0)
    two = MassOpResult(4, 0, [], [ConflictItem(key={"pk": "a"}, reason="VersionConflict")], None, 5, 5, 0.5, 4.0)
    assert one + two == MassOpResult(5, 2, [], two.conflicts, None, 8, 8, 1.0, 5.0)


# -- what errors say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("--max-items 0: must be at least 1", "max_items 0: must be at least 1"),
        ("delete needs --where, or --all to delete", "delete needs where, or all_items to delete"),
        ("--if-not-exists and --if-exists exclude each other", "if_not_exists and if_exists exclude each other"),
        ("a -- b, x--y and 5-3 stay", "a -- b, x--y and 5-3 stay"),
    ],
)
def test_options_are_called_what_they_are_in_python(said: str, meant: str) -> None:
    assert in_python(said) == meant


def test_an_error_is_the_same_error_in_other_words() -> None:
    with pytest.raises(errors.BadArgument, match=r"^max_items is none$") as caught, in_python_terms():
        raise errors.BadArgument("--max-items is none", why="as --all says", fix="give --map", state="--here")
    told: Any = caught.value
    assert (told.message, told.why, told.fix) == ("max_items is none", "as all_items says", "give map_fn")
