"""The control table: job record, segment checkpoints, cancellation, table lock.

One item a segment, so that totals are sums over segment records and a retried Spark task counts once.
Keys: `pk = job#<id>`, `sk = job | segment#<n>`, and `pk = table#<arn>`, `sk = lock`. TTL attribute `expires_at`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import botocore.exceptions
import msgspec

from bulkexec import errors
from bulkexec.model import Counts, SegmentRecord

RECORD_DAYS = 30
LOCK_SECONDS = 60.0
"""A lock not renewed for this long belongs to a dead job."""
LOCK_RENEWAL_SECONDS = 15.0


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


def create_table(client: Any, name: str) -> None:
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
        )
    except client.exceptions.ResourceInUseException:
        return
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"})


class ControlTable:
    """Typed access to the control table. Thread-safe."""

    def __init__(self, session: boto3.Session, region: str, name: str) -> None:
        self._client = session.client("dynamodb", region_name=region)
        self._name = name

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

    def put_job(self, job: Job) -> None:
        """Write a job's record anew."""
        item = self._key(f"job#{job.id}", "job") | {
            "record": {"S": msgspec.json.encode(job).decode()},
            "cancel": {"S": job.cancel},
            "run_number": {"N": str(job.run_number)},
            "run_id": {"S": job.run_id},
            "seconds": {"N": str(job.seconds)},
            "expires_at": _expiry(),
        }
        self._client.put_item(TableName=self._name, Item=item)

    def job(self, job_id: str) -> Job | None:
        """A job's record, None when there is none."""
        answer = self._client.get_item(TableName=self._name, Key=self._key(f"job#{job_id}", "job"), ConsistentRead=True)
        if "Item" not in answer:
            return None
        job = msgspec.json.decode(answer["Item"]["record"]["S"], type=Job)
        item = answer["Item"]
        return replace(job, cancel=item["cancel"]["S"], run_id=item["run_id"]["S"], seconds=float(item["seconds"]["N"]))

    def set_run(self, job_id: str, number: int, run_id: str) -> None:
        """Say which Glue job run works on the job now."""
        self._update(
            f"job#{job_id}",
            "job",
            "SET run_id = :i",
            {":i": {"S": run_id}, ":n": {"N": str(number)}},
            ConditionExpression="run_number = :n",
        )

    def seconds(self, job_id: str) -> float:
        """Working time of the job's runs so far."""
        job = self.job(job_id)
        return 0.0 if job is None else job.seconds

    def set_seconds(self, job_id: str, seconds: float) -> None:
        """Keep the working time."""
        self._update(f"job#{job_id}", "job", "SET seconds = :s", {":s": {"N": str(round(seconds, 3))}})

    def cancel(self, job_id: str, reason: str) -> None:
        """Ask every worker of the job to stop at its next page boundary. An empty reason takes that back."""
        self._update(f"job#{job_id}", "job", "SET cancel = :r", {":r": {"S": reason}})

    def cancelled(self, job_id: str) -> str:
        """Why the job should stop, or empty."""
        job = self.job(job_id)
        return "" if job is None else job.cancel

    def stop_reason(self, job_id: str, run_number: int) -> str:
        """Why a worker of this run should stop, or empty: the job is cancelled, or a later run has taken over."""
        answer = self._client.get_item(
            TableName=self._name,
            Key=self._key(f"job#{job_id}", "job"),
            ProjectionExpression="cancel, run_number",
            ConsistentRead=True,
        )
        item = answer.get("Item")
        if item is None:
            return "the job's record is gone"
        later = int(item["run_number"]["N"]) != run_number
        return "a later run has taken over" if later else str(item["cancel"]["S"])

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
        """Write a segment's checkpoint."""
        item = self._key(f"job#{job_id}", _segment_key(record.number)) | {
            "record": {"S": msgspec.json.encode(record).decode()},
            "counts": {"S": msgspec.json.encode(record.counts).decode()},
            "done": {"BOOL": record.done},
            "expires_at": _expiry(),
        }
        self._client.put_item(TableName=self._name, Item=item)

    def segment(self, job_id: str, number: int) -> SegmentRecord | None:
        """A segment's checkpoint, None when it was never written."""
        answer = self._client.get_item(
            TableName=self._name, Key=self._key(f"job#{job_id}", _segment_key(number)), ConsistentRead=True
        )
        if "Item" not in answer:
            return None
        return msgspec.json.decode(answer["Item"]["record"]["S"], type=SegmentRecord)

    def segments(self, job_id: str) -> Iterator[SegmentRecord]:
        """All checkpoints, by segment number."""
        for item in self._query(job_id, ConsistentRead=True):
            yield msgspec.json.decode(item["record"]["S"], type=SegmentRecord)

    def progress(self, job_id: str) -> tuple[Counts, int]:
        """(acknowledged counts, segments done): the sum over all segment records."""
        total, done = Counts(), 0
        for item in self._query(
            job_id, ProjectionExpression="#c,#d", ExpressionAttributeNames={"#c": "counts", "#d": "done"}
        ):
            total += msgspec.json.decode(item["counts"]["S"], type=Counts)
            done += item["done"]["BOOL"]
        return total, done

    def _query(self, job_id: str, **more: Any) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._name,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            ExpressionAttributeValues={":pk": {"S": f"job#{job_id}"}, ":sk": {"S": "segment#"}},
            **more,
        )
        for page in pages:
            yield from page["Items"]

    # -- the table lock ------------------------------------------------------------------------------------------

    def lock(self, table_arn: str, job_id: str) -> None:
        """Take or renew the table for a mutating job. Raises `errors.TableLocked` while another one holds it."""
        now = time.time()
        try:
            self._update(
                f"table#{table_arn}",
                "lock",
                "SET job = :j, held_until = :u, expires_at = :e",
                {
                    ":j": {"S": job_id},
                    ":u": {"N": str(now + LOCK_SECONDS)},
                    ":e": _expiry(),
                    ":now": {"N": str(now)},
                },
                ConditionExpression="attribute_not_exists(pk) OR job = :j OR held_until < :now",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as error:
            holder = error.response.get("Item", {}).get("job", {}).get("S", "another job")
            raise errors.TableLocked(
                f"job {holder} is changing this table", fix=f"bulkexec attach {holder}, or wait for its end"
            ) from error

    def unlock(self, table_arn: str, job_id: str) -> None:
        """Give the table free if this job holds it."""
        try:
            self._client.delete_item(
                TableName=self._name,
                Key=self._key(f"table#{table_arn}", "lock"),
                ConditionExpression="job = :j",
                ExpressionAttributeValues={":j": {"S": job_id}},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return  # taken over by another job after this one was taken for dead

    def exists(self) -> bool:
        """Whether the control table is there."""
        try:
            self._client.describe_table(TableName=self._name)
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return False
            raise
        return True


def _segment_key(number: int) -> str:
    return f"segment#{number:07d}"


def _expiry() -> dict[str, str]:
    return {"N": str(int(time.time()) + RECORD_DAYS * 86_400)}
