"""Takes away what bootstrap has made and leaves what jobs have found: a plan of steps comes first.

Only what carries bootstrap's tag is removed. Glue's log groups stay, also those that bootstrap made: every Glue job of
the account writes to them, and they tell what the jobs did.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import botocore.exceptions

from bulkexec import errors, layout
from bulkexec.runtimes.bootstrap import bucket_of, default_bucket, find_job
from bulkexec.runtimes.bucket import Bucket
from bulkexec.runtimes.deployment import CONTROL_TABLE, ERROR_LOGS, OUTPUT_LOGS
from bulkexec.runtimes.job_definition import JOB_NAME
from bulkexec.runtimes.role import JobRole
from bulkexec.runtimes.steps import LeftAlone, Site, Step, is_code, looked_at, tagged

ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")
KEYS_A_REQUEST = 1_000
"""DeleteObjects takes so many keys (API reference of S3)."""
CODE = re.compile(rf"({layout.SCRIPTS}/[0-9a-f]{{12}}/bulk_job\.py|{layout.WHEELS}/[0-9a-f]+/[^/]+\.whl)")
"""What bootstrap and clients put below these folders (`job_definition`, `wheel`)."""
NO_RESULT = re.compile(r"plan\.json|report\.json|runs/\d+/report\.json")
"""What lies in the folder of every job; anything else there are rows: skipped, failed or earlier items."""


def plan(site: Site) -> list[Step]:
    """What there is to remove, in an order in which nothing is left running without what it needs.

    Empty where there is nothing. Raises `errors.JobRunning` while a job runs, and botocore's errors.
    """
    job = find_job(site)
    _require_quiet(site, job)
    _require_unlocked(site)
    bucket = Bucket(site, bucket_of(job) or default_bucket(site))
    steps = [
        *_job_steps(site, job),
        *_table_steps(site),
        *JobRole(site, None, bucket.name).removal(),
        *(_bucket_steps(site, bucket) if bucket.exists(named=bucket.name != default_bucket(site)) else ()),
    ]
    return [*steps, *_log_steps(site)] if steps else []


def _require_quiet(site: Site, job: dict[str, Any] | None) -> None:
    if job is None:
        return
    pages = site.client("glue").get_paginator("get_job_runs").paginate(JobName=JOB_NAME)
    running = [run for page in pages for run in page["JobRuns"] if run["JobRunState"] not in ENDED]
    if not running:
        return
    job_id = running[0].get("Arguments", {}).get("--job_id", "")
    raise errors.JobRunning(
        f"job {job_id or running[0]['Id']} is running in {site.region}",
        fix=f"wait for its end: bulkexec attach {job_id}" if job_id else "stop it or wait for its end",
        state="nothing removed",
    )


def _require_unlocked(site: Site) -> None:
    """No job in a process of its own changes a table under a lock of the control table."""
    client = site.client("dynamodb")
    held = {"FilterExpression": "sk = :lock", "ExpressionAttributeValues": {":lock": {"S": "lock"}}}
    try:
        pages = client.get_paginator("scan").paginate(TableName=CONTROL_TABLE, **held)
        locks = [item for page in pages for item in page["Items"] if float(item["held_until"]["N"]) > time.time()]
    except client.exceptions.ResourceNotFoundException:
        return
    if locks:
        raise errors.JobRunning(
            f"job {locks[0]['job']['S']} is changing table {locks[0]['pk']['S'].rsplit('/', 1)[-1]}",
            fix="wait for its end",
            state="nothing removed",
        )


def _job_steps(site: Site, job: dict[str, Any] | None) -> list[Step]:
    client = site.client("glue")
    if job is None:
        return []
    arn = site.arn("glue", f"job/{JOB_NAME}")
    remove = partial(client.delete_job, JobName=JOB_NAME)
    ask: Callable[[], Any] = lambda: client.get_tags(ResourceArn=arn)["Tags"]  # noqa: E731
    return looked_at("Glue job", JOB_NAME, lambda: [_if_ours("Glue job", JOB_NAME, ask, remove)])


def _table_steps(site: Site) -> list[Step]:
    client, what = site.client("dynamodb"), "control table"
    try:
        arn = client.describe_table(TableName=CONTROL_TABLE)["Table"]["TableArn"]
    except client.exceptions.ResourceNotFoundException:
        return []
    remove = partial(client.delete_table, TableName=CONTROL_TABLE)
    lost = "with the records of jobs, none of which can be resumed or followed then"
    ask: Callable[[], Any] = lambda: client.list_tags_of_resource(ResourceArn=arn)["Tags"]  # noqa: E731
    return looked_at(what, CONTROL_TABLE, lambda: [_if_ours(what, CONTROL_TABLE, ask, remove, lost)])


def _if_ours(what: str, name: str, tags: Callable[[], Any], remove: Callable[[], Any], details: str = "") -> Step:
    if tagged(tags()):
        return Step("remove", what, name, details, remove)
    return Step("keep", what, name, "not made by bootstrap: it has no tag bulkexec")


# -- bucket ------------------------------------------------------------------------------------------------------


def _bucket_steps(site: Site, bucket: Bucket) -> list[Step]:
    client, place = site.client("s3"), f"s3://{bucket.name}"
    folders = (layout.SCRIPTS, layout.WHEELS)
    code = [key for folder in folders for key in _keys(client, bucket.name, folder) if CODE.fullmatch(key)]
    temporary = list(_keys(client, bucket.name, layout.TEMP))
    spent, kept = _job_folders(client, bucket.name)
    groups = (("code", code), ("temporary", temporary), ("job folders", spent))
    steps = [
        Step(
            "remove",
            what,
            f"{place}/{layout.ROOT}",
            f"{len(keys):,} objects",
            partial(_delete, client, bucket.name, keys),
        )
        for what, keys in groups
        if keys
    ]
    if kept:
        steps.append(Step("keep", "job folders", f"{place}/{layout.JOBS}", f"{kept:,} hold lists of items or keys"))
    return steps + _bucket_itself(client, bucket, sum(len(keys) for _, keys in groups))


def _bucket_itself(client: Any, bucket: Bucket, removed: int) -> list[Step]:
    results = next(_keys(client, bucket.name, layout.RESULTS), None) is not None
    ours = bucket.made_by_us()
    if ours and not _holds_more_than(client, bucket.name, removed):
        return [Step("remove", "bucket", bucket.name, "", partial(_delete_bucket, client, bucket.name))]
    why = f"results are kept in s3://{bucket.name}/{layout.RESULTS}" if results else "there is more in it"
    kept = Step("keep", "bucket", bucket.name, why if ours else f"not made by bootstrap{f'; {why}' if results else ''}")
    return [*looked_at("bucket", bucket.name, lambda: _settings(bucket, ours)), kept]


def _delete_bucket(client: Any, bucket: str) -> None:
    try:
        client.delete_bucket(Bucket=bucket)
    except botocore.exceptions.ClientError as error:
        if not is_code(error, "BucketNotEmpty"):
            raise
        raise LeftAlone("stays: earlier versions of objects are in it, or something came in meanwhile") from error


def _settings(bucket: Bucket, ours: bool) -> list[Step]:
    """A bucket that stays keeps its protection, unless it is somebody else's; nothing in it expires any more."""
    steps = []
    if bucket.has_our_rules():
        steps.append(Step("remove", "lifecycle", bucket.name, "rules of bulkexec", bucket.forget_rules))
    if not ours and bucket.has_our_statement():
        steps.append(Step("remove", "bucket policy", bucket.name, "statement of bulkexec", bucket.forget_tls))
    return steps


def _keys(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/" if prefix else "")
    return (entry["Key"] for page in pages for entry in page.get("Contents", ()))


def _holds_more_than(client: Any, bucket: str, count: int) -> bool:
    """Whether there are more objects than that; looks no further than it has to."""
    return any(number >= count for number, _ in enumerate(_keys(client, bucket, "")))


def _job_folders(client: Any, bucket: str) -> tuple[list[str], int]:
    """(keys of job folders that hold nothing but plan and reports, how many folders hold more)."""
    folders: dict[str, list[str]] = defaultdict(list)
    for key in _keys(client, bucket, layout.JOBS):
        folders[key.split("/")[2]].append(key)
    spent = [keys for keys in folders.values() if all(NO_RESULT.fullmatch(key.split("/", 3)[-1]) for key in keys)]
    return [key for keys in spent for key in keys], len(folders) - len(spent)


def _delete(client: Any, bucket: str, keys: Sequence[str]) -> None:
    for begin in range(0, len(keys), KEYS_A_REQUEST):
        objects = [{"Key": key} for key in keys[begin : begin + KEYS_A_REQUEST]]
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        for failure in answer.get("Errors", ())[:1]:
            raise errors.RequestRejected(
                f"s3://{bucket}/{failure['Key']} cannot be deleted: {failure.get('Message', failure['Code'])}",
                fix="bulkexec teardown goes on where it stopped",
            )


def _log_steps(site: Site) -> list[Step]:
    names = f"{OUTPUT_LOGS}, {ERROR_LOGS}"
    return [Step("keep", "log groups", names, "all Glue jobs of the account write there")]
