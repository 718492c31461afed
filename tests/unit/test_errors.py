"""The tree in the docstring is the tree in the code, and the page about errors knows every code."""

import inspect
import re
from pathlib import Path

import pytest

from bulkexec import errors
from bulkexec.errors import BulkexecError, Refused

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
CLASSES = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, BulkexecError) and each.__module__ == errors.__name__
]
CODED = [each for each in CLASSES if each not in (BulkexecError, Refused)]
DRAWN = re.findall(r"^(│?) *[├└]── (\w+) +(BX\d{3})?", errors.__doc__ or "", re.MULTILINE)


def test_the_docstring_draws_every_class_with_its_code() -> None:
    drawn = {name: code for _, name, code in DRAWN}
    assert drawn == {each.__name__: each.code for each in CODED} | {"Refused": ""}


def test_the_docstring_draws_each_class_below_its_base() -> None:
    for inner, name, code in DRAWN:
        base = Refused if inner and code else BulkexecError
        assert getattr(errors, name).__bases__ == (base,), name


def test_codes_are_unique_and_of_one_form() -> None:
    codes = [each.code for each in CODED]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"BX\d{3}", code) for code in codes)
    assert BulkexecError.code not in codes


@pytest.mark.parametrize("each", CODED, ids=lambda each: each.__name__)
def test_refusals_exit_with_2_and_are_numbered_from_100(each: type[BulkexecError]) -> None:
    refused = issubclass(each, Refused)
    assert each.exit_code == (2 if refused else 1)
    assert each.code.startswith("BX1") is refused
    assert each.__doc__


@pytest.mark.skipif(not PAGE.exists(), reason="docs/errors.md is not written yet")
@pytest.mark.parametrize("each", CODED, ids=lambda each: each.__name__)
def test_the_page_about_errors_lists_the_code(each: type[BulkexecError]) -> None:
    assert each.code in PAGE.read_text()


@pytest.mark.skipif(not PAGE.exists(), reason="docs/errors.md is not written yet")
def test_the_page_about_errors_lists_no_code_that_is_gone() -> None:
    assert set(re.findall(r"BX\d{3}", PAGE.read_text())) <= {each.code for each in CLASSES}


def test_an_error_says_what_why_how_to_mend_and_what_state_things_are_in() -> None:
    error = errors.RecoveryOff("recovery is off", why="no undo", fix="turn it on", state="nothing written")
    assert error.lines() == [
        "error BX104: recovery is off",
        "  why    no undo",
        "  fix    turn it on",
        "  state  nothing written",
    ]
    assert str(error) == "recovery is off"


def test_what_is_not_known_has_no_line() -> None:
    assert errors.Exhausted("gave up", fix="later").lines() == ["error BX303: gave up", "  fix    later"]


def test_an_error_is_about_no_job_until_there_is_one() -> None:
    assert errors.Exhausted("gave up").job_id == ""
