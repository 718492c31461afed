"""Signals and sudden death at random moments of a delete. Acceptance 4 of the main job.

After `resume` exactly the matching items are gone, none else, and the counts add up: exactly after a drain, within one
checkpoint interval after a kill.
"""

import os
import random
import signal
import time
from typing import Any

import psutil
import pytest

ITEMS, OLD = 1500, 500
EVERY = [0.1, 0.25, 0.4, 0.55, 0.7]
MOMENTS = [moment if moment in (0.25, 0.55) else pytest.param(moment, marks=pytest.mark.soak) for moment in EVERY]
KILLS = ("SIGINT", "SIGTERM", "client SIGKILL", "job SIGKILL")


def start(bulkexec: Any, table: str, runtime: str) -> Any:
    return bulkexec.start(
        *("delete", "--table", table, "--where", "state = 'OLD'", "--runtime", runtime, "--yes"),
        *("--write-rate", "100" if runtime == "glue" else "250", "--output", "json"),
    )


def old_left(tables: Any, table: str) -> int:
    return sum(item["state"]["S"] == "OLD" for item in tables.read(table))


def wait_until_deleted(tables: Any, table: str, share: float, process: Any) -> None:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if old_left(tables, table) <= OLD * (1 - share):
            return
        time.sleep(0.05)


def job_of(stderr_or_state: Any) -> str:
    (path,) = stderr_or_state.glob("*.json")
    return str(path.stem)


def check_table(tables: Any, table: str) -> None:
    assert tables.keys(table) == {f"k{n:07d}" for n in range(ITEMS) if n % 3}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", ["SIGINT", "SIGTERM"])
def test_a_drained_local_run_counts_exactly(kind: str, moment: float, bulkexec: Any, tables: Any, items: Any) -> None:
    table = tables.make(items(ITEMS, 100))
    process = start(bulkexec, table, "local")
    wait_until_deleted(tables, table, moment + random.uniform(-0.08, 0.05), process)
    process.send_signal(getattr(signal, kind))
    first = bulkexec.finish(process)
    assert first.code == 130, first.stderr
    assert first.report["processed"] == OLD - old_left(tables, table)
    assert first.report["scanned"] >= first.report["matched"] == first.report["processed"]
    whole = bulkexec.json("resume", first.report["job_id"])
    assert whole.code == 0
    check_table(tables, table)
    assert (whole.report["scanned"], whole.report["matched"], whole.report["processed"]) == (ITEMS, OLD, OLD)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_local_run_goes_on(moment: float, bulkexec: Any, tables: Any, items: Any, tmp_path: Any) -> None:
    table = tables.make(items(ITEMS, 100))
    process = start(bulkexec, table, "local")
    wait_until_deleted(tables, table, moment, process)
    process.kill()
    process.communicate()
    gone = OLD - old_left(tables, table)
    whole = bulkexec.json("resume", job_of(tmp_path / "state" / "jobs"))
    assert whole.code == 0
    check_table(tables, table)
    # What was deleted after the last checkpoint is not found again, so it is missing from both counts.
    assert OLD - gone <= whole.report["processed"] <= OLD
    assert whole.report["scanned"] - whole.report["processed"] == ITEMS - OLD


def test_a_second_signal_stops_a_local_run_at_once(bulkexec: Any, tables: Any, items: Any, tmp_path: Any) -> None:
    table = tables.make(items(ITEMS, 100))
    process = bulkexec.start(
        *("delete", "--table", table, "--where", "state = 'OLD'", "--yes", "--segments", "1", "--write-rate", "100")
    )
    wait_until_deleted(tables, table, 0.1, process)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    outcome = bulkexec.finish(process)
    assert (outcome.code, time.monotonic() - began < 5) == (130, True)
    assert "Traceback" not in outcome.stderr
    assert bulkexec.json("resume", job_of(tmp_path / "state" / "jobs")).code == 0
    check_table(tables, table)


def glue_job(sandbox: Any) -> tuple[str, str]:
    """(job id, run id) of the newest run."""
    (run, *_) = sandbox.client("glue").get_job_runs(JobName="bulkexec")["JobRuns"]
    return run["Arguments"]["--job_id"], run["Id"]


def kill_job(sandbox: Any, run_id: str) -> None:
    """kill -9 of the process that runs the job's script."""
    server = psutil.Process(sandbox.running.pid)
    (driver, *_) = [child for child in server.children(recursive=True) if run_id in command_line(child)]
    os.kill(driver.pid, signal.SIGKILL)


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""  # it has just ended


def interrupted_glue_run(kind: str, moment: float, bulkexec: Any, sandbox: Any, tables: Any, items: Any) -> None:
    table = tables.make(items(ITEMS, 100))
    process = start(bulkexec, table, "glue")
    wait_until_deleted(tables, table, moment, process)
    job_id, run_id = glue_job(sandbox)
    if kind == "job SIGKILL":
        kill_job(sandbox, run_id)
    else:
        process.send_signal(signal.SIGKILL if kind == "client SIGKILL" else getattr(signal, kind))
    first = bulkexec.finish(process)
    assert first.code == {"job SIGKILL": 1, "client SIGKILL": -9}.get(kind, 130), first.stderr
    if kind.startswith("SIG"):
        assert first.report["processed"] == OLD - old_left(tables, table)
    whole = bulkexec.json("resume", job_id)
    assert whole.code == 0, whole.stderr
    check_table(tables, table)
    assert whole.report["scanned"] - whole.report["processed"] == ITEMS - OLD
    if kind != "job SIGKILL":
        assert whole.report["processed"] == OLD


@pytest.mark.parametrize("kind", [KILLS[0], KILLS[-1]])  # all of them, at every moment, are in the soak below
def test_an_interrupted_glue_run_goes_on(
    kind: str, bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    interrupted_glue_run(kind, random.uniform(0.1, 0.7), bulkexec, sandbox, tables, items)


@pytest.mark.soak
@pytest.mark.parametrize("moment", EVERY)
@pytest.mark.parametrize("kind", KILLS)
def test_an_interrupted_glue_run_goes_on_at_any_moment(
    kind: str, moment: float, bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    interrupted_glue_run(kind, moment, bulkexec, sandbox, tables, items)


def test_two_signals_stop_the_job_run_and_it_can_be_resumed(
    bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    # case C110
    table = tables.make(items(ITEMS, 100))
    process = start(bulkexec, table, "glue")
    wait_until_deleted(tables, table, 0.2, process)
    job_id, run_id = glue_job(sandbox)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    first = bulkexec.finish(process)
    assert first.code == 130
    state = sandbox.client("glue").get_job_run(JobName="bulkexec", RunId=run_id)["JobRun"]["JobRunState"]
    assert state in ("STOPPED", "SUCCEEDED")  # SUCCEEDED: it had drained before the stop came
    assert bulkexec.json("resume", job_id).code == 0
    check_table(tables, table)
