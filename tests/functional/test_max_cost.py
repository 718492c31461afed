"""--max-cost: refused before the start, or stopped cleanly when it is spent; and resumable."""

import pytest


def test_too_dear_is_refused_before_anything_is_done(bulkexec, tables, items):
    # case C088
    name = tables.make(items(300, 2000))
    refused = bulkexec.json("delete", "--table", name, "--all", "--yes", "--max-cost", "0.0001")
    assert refused.code == 2
    assert "BX116" in refused.report["error"][0]
    assert "at least $0.0003" in refused.report["error"][0]
    assert "PLAN  delete" in refused.stderr, "what was too dear is shown"
    assert len(tables.read(name)) == 300


def test_a_run_ends_when_the_money_is_spent_and_goes_on_when_asked(bulkexec, tables, items):
    # a filter may match anything, so the low end is below the limit; 2,000 writes of 2 units are 2,500 millionths
    name = tables.make(items(2000, 1500))
    arguments = ("--table", name, "--where", "n >= 0", "--yes", "--no-sample", "--write-rate", "400")
    stopped = bulkexec.json("delete", *arguments, "--max-cost", "0.001")
    assert (stopped.code, stopped.report["status"]) == (4, "capped"), stopped.stderr
    left = len(tables.read(name))
    assert left == 2000 - stopped.report["processed"]
    assert 0 < left < 2000
    assert 0.001 <= stopped.report["metered_cost_usd"] < 0.002, "what was under way is finished, and no more"
    again = bulkexec.json("resume", stopped.report["job_id"])
    assert again.report["processed"] > stopped.report["processed"]
    last = again
    while last.code == 4:
        last = bulkexec.json("resume", stopped.report["job_id"])
    assert (last.code, last.report["processed"]) == (0, 2000)
    assert tables.read(name) == []


def test_enough_money_changes_nothing(bulkexec, tables, items):
    name = tables.make(items(50, 100))
    done = bulkexec.json("delete", "--table", name, "--all", "--yes", "--max-cost", "1")
    assert (done.code, done.report["processed"]) == (0, 50)
    assert "--max-cost" in done.stderr


def test_reading_costs_too(bulkexec, tables, items):
    name = tables.make(items(1000, 3000))
    refused = bulkexec.json("count", "--table", name, "--max-cost", "0.00004")
    assert (refused.code, "BX116" in refused.report["error"][0]) == (2, True), refused.stderr
    assert bulkexec.json("count", "--table", name, "--max-cost", "0.0001").code == 0


@pytest.mark.parametrize("wrong", ["0", "-1", "much", "nan", "inf"])
def test_what_is_no_sum_is_refused(bulkexec, wrong):
    assert bulkexec("count", "--table", "any", "--max-cost", wrong).code == 2


def test_a_fleet_stops_when_the_money_is_spent(bulkexec, tables, items, deployed):
    # 120 items of 381 units each are $0.029; workers cost $0.015 for their first minute, which the estimate counts
    name = tables.make(items(120, 390_000))
    stopped = bulkexec.json(
        *("delete", "--table", name, "--where", "n >= 0", "--yes", "--no-sample", "--write-rate", "1000"),
        *("--runtime", "glue", "--max-cost", "0.018"),
    )
    assert (stopped.code, stopped.report["status"]) == (4, "capped"), stopped.stderr
    left = len(tables.read(name))
    assert left == 120 - stopped.report["processed"]
    assert 0 < left < 120
