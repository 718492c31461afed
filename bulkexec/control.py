"""The control table: job record, segment checkpoints, cancellation, table lock.

One item a segment, so that totals are sums over segment records and a retried Spark task counts once; the files of a
segment are items of their own, as no number of them may bring the record to 400 KB.
Keys: `pk = job#<id>`, `sk = job | handled#<run> | segment#<n> | file#<segment>#<n>`, and `pk = table#<arn>`,
`sk = lock`. TTL attribute `expires_at`.

A job is worked on by one run at a time. Its number is given by whoever starts it, by a conditional write, so two
clients cannot start the same one; the Glue run that comes first claims the number with its own id, so two Glue runs of
one number cannot both work. What a stale run still writes is refused by the run number in each record.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import boto3
import botocore.exceptions
import msgspec
from botocore.config import Config

from bulkexec import errors
from bulkexec.model import Counts, DataFile, SegmentRecord

RECORD_DAYS = 30
LOCK_SECONDS = 60.0
"""A lock not renewed for this long belongs to a dead job."""
LOCK_RENEWAL_SECONDS = 15.0
START_LOCK_SECONDS = 600.0
"""The first lease, taken by the client, must outlast the start of a Glue run and its wait for workers."""
CONFIG = Config(connect_timeout=3, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 6})
TAKEN_OVER = "a later run has taken over"


class TakenOver(errors.TableLocked):
    """Another run of the same job does its work now; this one must leave everything as it is."""


@dataclass(frozen=True)
class Job:
    """A job's record. `run_id` is the Glue job run that works on it now; `cancel` is why it should stop, or empty."""

    id: str
    plan_uri: str
    table_arn: str
    command: str
    run_id: str = ""
    cancel: str = ""
    started: float = 0.0
    run_number: int = 0
    seconds: float = 0.0


def create_table(client: Any, name: str, tags: Sequence[dict[str, str]] = ()) -> None:
    """Make the control table: on demand, with TTL. No-op when it exists."""
    try:
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            Tags=list(tags),
        )
    except client.exceptions.ResourceInUseException:
        return
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"})


class ControlTable:
    """Typed access to the control table, for the run `run_number` of a job where there is one. Thread-safe."""

    def __init__(
        self, session: boto3.Session, region: str, name: str, run_number: int = 0, config: Config = CONFIG
    ) -> None:
        self._client = session.client("dynamodb", region_name=region, config=config)
        self._name, self._run_number = name, run_number
        self._filed: dict[tuple[str, int], int] = {}

    def _key(self, pk: str, sk: str) -> dict[str, dict[str, str]]:
        return {"pk": {"S": pk}, "sk": {"S": sk}}

    def _update(self, pk: str, sk: str, expression: str, values: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.update_item(
            TableName=self._name,
            Key=self._key(pk, sk),
            UpdateExpression=expression,
            ExpressionAttributeValues=values,
            **more,
        )
        return answer

    # -- the job -------------------------------------------------------------------------------------------------

    def put_job(self, job: Job, after: int | None = None) -> None:
        """Write a job's record anew. `after` is the run number it must have until then, 0 for a job with no record.

        Raises `TakenOver` when the number is another one: somebody else has started a run meanwhile.
        """
        item = self._key(f"job#{job.id}", "job") | {
            "record": {"S": msgspec.json.encode(job).decode()},
            "cancel": {"S": job.cancel},
            "run_number": {"N": str(job.run_number)},
            "run_id": {"S": job.run_id},
            "seconds": {"N": str(job.seconds)},
            "expires_at": _expiry(),
        }
        condition: dict[str, Any] = {}
        if after is not None:
            condition["ConditionExpression"] = "run_number = :n" if after else "attribute_not_exists(pk)"
        if after:
            condition["ExpressionAttributeValues"] = {":n": {"N": str(after)}}
        try:
            self._client.put_item(TableName=self._name, Item=item, **condition)
        except self._client.exceptions.ConditionalCheckFailedException as error:
            raise TakenOver(
                f"another client has just started or resumed job {job.id}", fix=f"bulkexec attach {job.id}"
            ) from error

    def job(self, job_id: str) -> Job | None:
        """A job's record, None when there is none."""
        answer = self._client.get_item(TableName=self._name, Key=self._key(f"job#{job_id}", "job"), ConsistentRead=True)
        if "Item" not in answer:
            return None
        job = msgspec.json.decode(answer["Item"]["record"]["S"], type=Job)
        item = answer["Item"]
        return replace(job, cancel=item["cancel"]["S"], run_id=item["run_id"]["S"], seconds=float(item["seconds"]["N"]))

    def set_run(self, job_id: str, number: int, run_id: str) -> None:
        """Say which Glue job run works on the job now; safe to repeat. Client and driver both do, whichever is first.

        Raises `TakenOver` when another Glue run has this number, or the number is not the job's any more.
        """
        try:
            self._update(
                f"job#{job_id}",
                "job",
                "SET run_id = :i",
                {":i": {"S": run_id}, ":n": {"N": str(number)}, ":none": {"S": ""}},
                ConditionExpression="run_number = :n AND (run_id = :none OR run_id = :i)",
            )
        except self._client.exceptions.ConditionalCheckFailedException as error:
            raise TakenOver(f"another Glue run works on job {job_id}", fix=f"bulkexec attach {job_id}") from error

    def seconds(self, job_id: str) -> float:
        """Working time of the job's runs so far."""
        job = self.job(job_id)
        return 0.0 if job is None else job.seconds

    def set_seconds(self, job_id: str, seconds: float, run_number: int | None = None) -> None:
        """Keep the working time. No-op when the job's record is gone, or, with `run_number`, is another run's."""
        self._touch(job_id, "SET seconds = :s", {":s": {"N": str(round(seconds, 3))}}, run_number)

    def cancel(self, job_id: str, reason: str, run_number: int | None = None) -> None:
        """Ask every worker of the job to stop at its next page boundary. An empty reason takes that back.

        No-op when the job's record is gone, or, with `run_number`, when another run works on it.
        """
        self._touch(job_id, "SET cancel = :r", {":r": {"S": reason}}, run_number)

    def _touch(self, job_id: str, expression: str, values: dict[str, Any], run_number: int | None = None) -> None:
        """Update the job's record; one that is gone must not come back as a stub that never expires (case C028)."""
        condition = "attribute_exists(pk)"
        if run_number is not None:
            condition, values = "run_number = :n", values | {":n": {"N": str(run_number)}}
        try:
            self._update(f"job#{job_id}", "job", expression, values, ConditionExpression=condition)
        except self._client.exceptions.ConditionalCheckFailedException:
            return

    def cancelled(self, job_id: str) -> str:
        """Why the job should stop, or empty."""
        job = self.job(job_id)
        return "" if job is None else job.cancel

    def stop_reason(self, job_id: str, run_number: int, run_id: str = "") -> str:
        """Why a worker of this run should stop, or empty: the job is cancelled, or `TAKEN_OVER`."""
        answer = self._client.get_item(
            TableName=self._name,
            Key=self._key(f"job#{job_id}", "job"),
            ProjectionExpression="cancel, run_number, run_id",
            ConsistentRead=True,
        )
        item = answer.get("Item")
        if item is None:
            return "the job's record is gone"
        other = run_id and item["run_id"]["S"] not in ("", run_id)
        return TAKEN_OVER if other or int(item["run_number"]["N"]) != run_number else str(item["cancel"]["S"])

    def add_handled(self, job_id: str, run_number: int, items: int) -> int:
        """Add to the number of items this run has handled, over all workers; gives the new total."""
        answer = self._update(
            f"job#{job_id}",
            f"handled#{run_number}",
            "ADD handled :n SET expires_at = :e",
            {":n": {"N": str(items)}, ":e": _expiry()},
            ReturnValues="UPDATED_NEW",
        )
        return int(answer["Attributes"]["handled"]["N"])

    # -- segments ------------------------------------------------------------------------------------------------

    def save_segment(self, job_id: str, record: SegmentRecord) -> None:
        """Write a segment's checkpoint. Raises `TakenOver` when a later run has written it already."""
        filed = self._filed.get((job_id, record.number), 0)
        for number in range(filed, len(record.files)):
            file = {"file": {"S": msgspec.json.encode(record.files[number]).decode()}}
            self._put_of_run(job_id, f"{_file_prefix(record.number)}{number:07d}", file)
        kept = replace(record, files=())
        item = {
            "record": {"S": msgspec.json.encode(kept).decode()},
            "counts": {"S": msgspec.json.encode(record.counts).decode()},
            "done": {"BOOL": record.done},
            "files": {"N": str(len(record.files))},
        }
        self._put_of_run(job_id, _segment_key(record.number), item)
        self._filed[job_id, record.number] = len(record.files)

    def _put_of_run(self, job_id: str, sk: str, item: dict[str, Any]) -> None:
        """Put an item that only this run or an earlier one may have written."""
        number = {"N": str(self._run_number)}
        try:
            self._client.put_item(
                TableName=self._name,
                Item=self._key(f"job#{job_id}", sk) | item | {"run_number": number, "expires_at": _expiry()},
                ConditionExpression="attribute_not_exists(pk) OR run_number <= :n",
                ExpressionAttributeValues={":n": number},
            )
        except self._client.exceptions.ConditionalCheckFailedException as error:
            raise TakenOver(f"{TAKEN_OVER} job {job_id}", fix=f"bulkexec attach {job_id}") from error

    def segment(self, job_id: str, number: int) -> SegmentRecord | None:
        """A segment's checkpoint, None when it was never written."""
        answer = self._client.get_item(
            TableName=self._name, Key=self._key(f"job#{job_id}", _segment_key(number)), ConsistentRead=True
        )
        if "Item" not in answer:
            return None
        record, count = _record_of(answer["Item"])
        files = [file for _, file in self._files(job_id, _file_prefix(number))] if count else []
        self._filed[job_id, number] = count
        return replace(record, files=tuple(files[:count]))

    def segments(self, job_id: str) -> Iterator[SegmentRecord]:
        """All checkpoints, by segment number."""
        records = [_record_of(item) for item in self._query(job_id, "segment#", ConsistentRead=True)]
        files: dict[int, list[DataFile]] = {}
        if any(count for _, count in records):
            for segment, file in self._files(job_id, "file#"):
                files.setdefault(segment, []).append(file)
        for record, count in records:
            # A file beyond the record's count was written by a run that died before the record was.
            yield replace(record, files=tuple(files.get(record.number, [])[:count]))

    def _files(self, job_id: str, prefix: str) -> Iterator[tuple[int, DataFile]]:
        """(segment, file) in order."""
        for item in self._query(job_id, prefix, ConsistentRead=True):
            yield int(item["sk"]["S"].split("#")[1]), msgspec.json.decode(item["file"]["S"], type=DataFile)

    def progress(self, job_id: str) -> tuple[Counts, int]:
        """(acknowledged counts, segments done): the sum over all segment records."""
        total, done = Counts(), 0
        for item in self._query(
            job_id, "segment#", ProjectionExpression="#c,#d", ExpressionAttributeNames={"#c": "counts", "#d": "done"}
        ):
            total += msgspec.json.decode(item["counts"]["S"], type=Counts)
            done += item["done"]["BOOL"]
        return total, done

    def _query(self, job_id: str, prefix: str, **more: Any) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._name,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            ExpressionAttributeValues={":pk": {"S": f"job#{job_id}"}, ":sk": {"S": prefix}},
            **more,
        )
        for page in pages:
            yield from page["Items"]

    # -- the table lock ------------------------------------------------------------------------------------------

    def lock(self, table_arn: str, job_id: str, run_number: int = 0, seconds: float | None = None) -> float:
        """Take or renew the table for a run of a mutating job; gives the time (`time.time`) until which it is held.

        A later run takes over the lock of its own job. Raises `errors.TableLocked` while another job holds the table,
        and `TakenOver` while a later run of this one does.
        """
        now = time.time()
        until = now + (LOCK_SECONDS if seconds is None else seconds)
        values = {
            ":j": {"S": job_id},
            ":r": {"N": str(run_number)},
            ":u": {"N": str(until)},
            ":e": _expiry(),
            ":now": {"N": str(now)},
        }
        try:
            self._update(
                f"table#{table_arn}",
                "lock",
                "SET job = :j, run_number = :r, held_until = :u, expires_at = :e",
                values,
                ConditionExpression="attribute_not_exists(pk) OR held_until < :now OR (job = :j AND run_number <= :r)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as error:
            raise _held(error, job_id) from error
        return until

    def unlock(self, table_arn: str, job_id: str, run_number: int = 0) -> None:
        """Give the table free if this run of the job holds it."""
        try:
            self._client.delete_item(
                TableName=self._name,
                Key=self._key(f"table#{table_arn}", "lock"),
                ConditionExpression="job = :j AND run_number = :r",
                ExpressionAttributeValues={":j": {"S": job_id}, ":r": {"N": str(run_number)}},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return  # taken over by another run after this one was taken for dead

    def exists(self) -> bool:
        """Whether the control table is there."""
        try:
            self._client.describe_table(TableName=self._name)
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return False
            raise
        return True


def _held(error: botocore.exceptions.ClientError, job_id: str) -> errors.TableLocked:
    """Who holds the lock that was refused to this job."""
    holder = error.response.get("Item", {}).get("job", {}).get("S", "another job")
    if holder == job_id:
        return TakenOver(f"{TAKEN_OVER} job {job_id}", fix=f"bulkexec attach {job_id}")
    locked = errors.TableLocked(
        f"job {holder} is changing this table", fix=f"bulkexec attach {holder}, or wait for its end"
    )
    locked.holder = holder
    return locked


def _record_of(item: dict[str, Any]) -> tuple[SegmentRecord, int]:
    """A segment's record without its files, and how many it has."""
    return msgspec.json.decode(item["record"]["S"], type=SegmentRecord), int(item["files"]["N"])


def _segment_key(number: int) -> str:
    return f"segment#{number:07d}"


def _file_prefix(segment: int) -> str:
    return f"file#{segment:07d}#"


def _expiry() -> dict[str, str]:
    return {"N": str(int(time.time()) + RECORD_DAYS * 86_400)}
