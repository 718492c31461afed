"""Every example of docs/filters.md does what the page says."""

import re
from pathlib import Path

import pytest

from bulkexec.errors import BadFilter
from bulkexec.model import KeyAttribute
from bulkexec.where import compile_filter, compile_key_condition, parse_clause, parse_where, split_key

PAGE = (Path(__file__).parents[2] / "docs" / "filters.md").read_text(encoding="utf-8")
EXAMPLES = [line for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
CLAUSES = [line for block in re.findall(r"```clause\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
REFUSED = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_compiles(example: str) -> None:
    assert compile_filter(parse_where(example)).text


@pytest.mark.parametrize("example", CLAUSES)
def test_clause_compiles(example: str) -> None:
    assert compile_filter(parse_clause(example)).text


@pytest.mark.parametrize("example", REFUSED)
def test_example_is_refused(example: str) -> None:
    with pytest.raises(BadFilter):
        compile_filter(parse_where(example))


def test_example_of_a_pinned_key() -> None:
    (example,) = [example for example in EXAMPLES if example.startswith("customer")]
    condition, rest = split_key(parse_where(example), (KeyAttribute("customer", "S"), KeyAttribute("day", "S")))
    assert condition is not None
    assert compile_key_condition(condition).text == "#k0 = :k0 AND #k1 BETWEEN :k1 AND :k2"
    assert rest == parse_where("total > 100")


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 40
    assert len(CLAUSES) > 15
    assert len(REFUSED) > 15
