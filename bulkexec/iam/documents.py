"""The files that are made from the table: `iam/*.json` and the README's section on permissions."""

import json
from collections.abc import Iterator
from pathlib import Path

from bulkexec.iam.grants import GRANTS, NEEDS_NO_PERMISSION, ROLES, Grant, Role
from bulkexec.iam.policies import policy, trust_policy

BEGIN, END = "<!-- permissions: made by `python -m bulkexec.iam`, do not edit -->", "<!-- end of permissions -->"

TITLES: dict[Role, str] = {
    "bootstrap": "who runs `bulkexec bootstrap` and `teardown`",
    "caller": "who runs the commands",
    "job": "the role of the Glue job",
    "job-read-only": "the same for jobs that change nothing",
}


def as_json(document: object) -> str:
    """A document as it stands in a file."""
    return json.dumps(document, indent=2) + "\n"


def generated(root: Path) -> Iterator[tuple[Path, str]]:
    """(file, content) of everything that is made from the table. Raises ValueError when the README has no section."""
    for role in ROLES:
        yield root / "iam" / f"{role}.json", as_json(policy(role))
    yield root / "iam" / "job-trust.json", as_json(trust_policy())
    readme = root / "README.md"
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme} has no section between {BEGIN} and {END}")
    yield readme, f"{before}{BEGIN}\n{section()}{END}{after}"


def section() -> str:
    """The README's section: a table for each role."""
    parts = [_role_table(role) for role in ROLES if role != "job-read-only"]
    free = "; ".join(f"`{action}` ({why})" for action, why in NEEDS_NO_PERMISSION.items())
    return "".join(parts) + f"\nNeeds no permission: {free}.\n"


def _role_table(role: Role) -> str:
    """One role's rows, folded: there are many."""
    title = TITLES[role].replace("`", "")
    files = f"[`iam/{role}.json`](iam/{role}.json)"
    if role == "job":
        files += "; [`iam/job-read-only.json`](iam/job-read-only.json) leaves out what is marked *"
    rows = [_starred(_row(grant), role) for grant in GRANTS if role in grant.roles]
    head = ["", f"<details><summary><b>{role}</b>: {title}</summary>", "", files, ""]
    return "\n".join([*head, "| action | on | why |", "|---|---|---|", *rows, "", "</details>", ""])


def _row(grant: Grant) -> tuple[str, str, str, bool]:
    why = f"{grant.why}; without it {grant.without}" if grant.without else grant.why
    return f"`{grant.action}`", ", ".join(grant.on), why, "job-read-only" in grant.roles


def _starred(row: tuple[str, str, str, bool], role: Role) -> str:
    action, on, why, reads = row
    return f"| {action}{'' if role != 'job' or reads else ' *'} | {on} | {why} |"
