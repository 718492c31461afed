"""Jobs that are there already: continue one, follow one, change the rate of one."""

from collections.abc import Mapping

from bulkexec import errors
from bulkexec.accounts import session_for
from bulkexec.ceilings import fetch_ceilings, resolve_rate
from bulkexec.describe import recovery, require_recovery, require_same_table
from bulkexec.launch import Launch, follow, job_id_of, naming, submit, walk
from bulkexec.model import Table
from bulkexec.plan import Plan
from bulkexec.planning import key_list
from bulkexec.prepare import Caller, in_region
from bulkexec.pricing import fetch_prices
from bulkexec.rate import Kind, parse_asked
from bulkexec.report import Report
from bulkexec.runtimes import glue, local
from bulkexec.runtimes.deployment import Deployment
from bulkexec.runtimes.live_rates import NewRates, change_fleet, leave
from bulkexec.runtimes.rates import index_resource, target_resource


def resume(caller: Caller, job_id: str) -> Report:
    """Continue a job where its checkpoints are; attach when it still runs. Raises `errors.UnknownJob`."""
    job = local.read_job(job_id_of(job_id))
    with naming(job_id):
        return _resume_in_glue(caller, job_id) if job is None else _resume_local(caller, job)


def _resume_local(caller: Caller, job: local.JobFile) -> Report:
    table = job.plan.work.scope.table
    if caller.region not in (None, table.region):
        raise errors.BadArgument(
            f"job {job.id} is of table {table.name} in {table.region}, not in {caller.region}",
            fix="leave --region out",
        )
    local.require_state_directory()
    with local.hold_job(job.id):
        # Read again: what another process had written until it let the job go.
        job = local.read_job(job.id) or job
        _require_same_list(caller, job)
        return walk(caller, _again(caller, job.plan, job.id, None), job)


def _require_same_list(caller: Caller, job: local.JobFile) -> None:
    """A checkpoint is a place in the list: in another one keys would be left out, or done again."""
    work = job.plan.work
    if work.keys_sha256 and key_list(caller.session, work.scope.table, work.keys).sha256 != work.keys_sha256:
        raise errors.BadArgument(
            f"{work.keys} is not the list that job {job.id} began with",
            fix="put that one back, or start the command anew",
            state="nothing written since",
        )


def _resume_in_glue(caller: Caller, job_id: str) -> Report:
    service, plan, run = _open_job(caller, job_id)
    if service.alive(run):
        caller.terminal.say(f"job {job_id} is still running; attached to it")
        return follow(caller, _attached(caller, plan, job_id, service), service, lambda: run)
    return submit(caller, _again(caller, plan, job_id, service.deployment), service)


def attach(caller: Caller, job_id: str) -> Report:
    """Follow a Glue job that runs, or show the report of one that has ended."""
    if local.read_job(job_id_of(job_id)) is not None:
        raise errors.BadArgument(
            f"job {job_id} runs in a process of this machine, not in Glue", fix=f"bulkexec resume {job_id}"
        )
    with naming(job_id):
        service, plan, run = _open_job(caller, job_id)
        return follow(caller, _attached(caller, plan, job_id, service), service, lambda: run)


def _open_job(caller: Caller, job_id: str) -> tuple[glue.GlueRuntime, Plan, glue.JobRun]:
    try:
        return glue.open_job(caller.session, job_id)
    except errors.NotDeployed as error:
        raise errors.UnknownJob(
            f"there is no job {job_id} on this machine, and no other can be found: {error.message}",
            fix="check --region and --profile",
        ) from error


def _attached(caller: Caller, plan: Plan, job_id: str, service: glue.GlueRuntime) -> Launch:
    table = plan.work.scope.table
    prices = fetch_prices(caller.session, table.region, table.table_class)
    return Launch(plan, prices, job_id, service.deployment, None)


def _again(caller: Caller, plan: Plan, job_id: str, deployment: Deployment | None) -> Launch:
    """The plan of a job that goes on, checked against the table as it is now."""
    table = require_same_table(caller.session, plan.work.scope.table)
    for each in plan.work.changed if plan.mutates and not plan.options.dry_run else ():
        session = session_for(caller.session, each, plan.work, plan.options)
        require_recovery(require_same_table(session, each), recovery(session, each)[0])
    prices = fetch_prices(caller.session, table.region, table.table_class)
    caller.terminal.say(f"RESUME  {plan.command}  {table.name}   job {job_id}   plan {plan.id}")
    return Launch(plan, prices, job_id, deployment, None)


def change_rate(caller: Caller, job_id: str, read: str | None, write: str | None) -> list[str]:
    """New rates for a job that runs, obeyed by all its workers within 3 s; 0 pauses. Gives a line for each.

    Raises `errors.BadArgument` for what is no rate, and when the job does not run.
    """
    if read is None and write is None:
        raise errors.BadArgument("nothing to change", fix="give --read-rate, --write-rate or both; 0 pauses")
    job = local.read_job(job_id_of(job_id))
    if job is not None:
        rates = _new_rates(caller, job.plan, read, write)
        if not local.is_running(job_id):
            raise errors.BadArgument(f"job {job_id} is not running", fix=f"bulkexec resume {job_id}")
        leave(local.rates_file(job_id), rates)
        named = (("read", rates.reads), ("write", rates.writes))
        return [f"{kind} {resource}: {rate:g} units/s" for kind, many in named for resource, rate in many.items()]
    service, plan, run = _open_job(caller, job_id)
    if not service.alive(run):
        raise errors.BadArgument(f"job {job_id} is not running", fix=f"bulkexec resume {job_id}")
    region, control_table = service.deployment.region, service.deployment.control_table
    return change_fleet(caller.session, control_table, job_id, region, _new_rates(caller, plan, read, write))


def _new_rates(caller: Caller, plan: Plan, read: str | None, write: str | None) -> NewRates:
    work = plan.work
    reads = {} if read is None else {work.scope.table.name: _rate(caller, plan, work.scope.table, "read", read)[0]}
    writes: dict[str, float] = {}
    for table in work.changed if write is not None else ():
        resource = table.name if table is not work.target else target_resource(table)
        rate, indexes = _rate(caller, plan, table, "write", write or "")
        writes |= {resource: rate} | {index_resource(resource, name): each for name, each in indexes.items()}
    return NewRates(reads, writes)


def _rate(caller: Caller, plan: Plan, table: Table, kind: Kind, text: str) -> tuple[float, Mapping[str, float]]:
    """A table's new rate and those of its indexes. 0 pauses all of them."""
    if parse_asked(text, kind, pause=True).units_per_second == 0:
        return 0.0, {index.name: 0.0 for index in table.indexes if index.kind == "GSI"}
    session = in_region(session_for(caller.session, table, plan.work, plan.options), table.region)
    resolved = resolve_rate(text, kind, table, fetch_ceilings(session, table))
    for line in resolved.warnings:
        caller.terminal.say(f"warning: {line}")
    return resolved.units_per_second, resolved.indexes
