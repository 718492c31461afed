"""bulkexec plan … -o FILE, and bulkexec apply FILE: what was approved is what runs, or nothing."""

import json
import uuid

import pytest

WHERE = ("--where", "state = 'OLD'")


@pytest.fixture
def planned(bulkexec, tables, items, tmp_path):
    """(table, file) of a plan to delete a third of 300 items."""
    name, file = tables.make(items(300, 400)), tmp_path / "plan.json"
    outcome = bulkexec("plan", "delete", "--table", name, *WHERE, "--write-rate", "333", "-o", str(file))
    assert outcome.code == 0, outcome.stderr
    assert "PLAN  delete" in outcome.stdout + outcome.stderr
    assert f"bulkexec apply {file}" in outcome.stdout + outcome.stderr
    assert len(tables.read(name)) == 300, "nothing was done"
    return name, file


def test_what_was_planned_is_what_runs(bulkexec, tables, planned):
    name, file = planned
    done = bulkexec.json("apply", str(file), "--yes")
    assert (done.code, done.report["processed"]) == (0, 100)
    assert {item["state"]["S"] for item in tables.read(name)} == {"NEW"}
    plan = json.loads(file.read_bytes())["plan"]
    assert plan["options"]["write_rate"] == 333
    assert plan["where"] == "state = 'OLD'"


def test_a_plan_still_has_to_be_confirmed(bulkexec, tables, planned):
    name, file = planned
    refused = bulkexec.json("apply", str(file))
    assert (refused.code, len(tables.read(name))) == (2, 300)
    assert "BX105" in refused.report["error"][0]


def refused_as_stale(bulkexec, tables, name, file, words):
    refused = bulkexec.json("apply", str(file), "--yes")
    assert refused.code == 2
    assert "BX117" in refused.report["error"][0]
    assert words in refused.report["error"][0]
    assert len(tables.read(name)) == 300


def test_recovery_that_was_turned_off_is_refused(bulkexec, tables, planned):
    name, file = planned
    tables.client.update_continuous_backups(
        TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": False}
    )
    refused_as_stale(bulkexec, tables, name, file, "point-in-time recovery is off")


def test_a_new_index_is_refused(bulkexec, tables, planned):
    name, file = planned
    tables.client.update_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "state", "AttributeType": "S"}],
        GlobalSecondaryIndexUpdates=[
            {
                "Create": {
                    "IndexName": "by-state",
                    "KeySchema": [{"AttributeName": "state", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                }
            }
        ],
    )
    refused_as_stale(bulkexec, tables, name, file, "index by-state is new")


def test_a_table_that_was_made_again_is_refused(bulkexec, tables, items, planned):
    name, file = planned
    tables.client.delete_table(TableName=name)
    tables.client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    tables.client.update_continuous_backups(
        TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    tables.put(name, items(300, 400))
    refused_as_stale(bulkexec, tables, name, file, "dropped and made again")


def test_another_region_is_refused(bulkexec, tables, planned):
    name, file = planned
    refused = bulkexec.json("apply", str(file), "--yes", "--region", "eu-west-1")
    assert refused.code == 2
    assert "BX117" in refused.report["error"][0]
    assert len(tables.read(name)) == 300


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: plan | {"bulkexec": "9.0.0"}, "made by bulkexec 9.0.0"),
        (lambda plan: plan | {"plan_hash": "0" * 64}, "changed after it was made"),
        (lambda plan: [], "is no plan"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(bulkexec, tables, planned, change, words):
    name, file = planned
    file.write_text(json.dumps(change(json.loads(file.read_bytes()))))
    refused_as_stale(bulkexec, tables, name, file, words)


def test_a_map_travels_in_the_plan_and_is_pinned(bulkexec, tables, items, tmp_path):
    name, file, code = tables.make(items(30, 100)), tmp_path / "plan.json", tmp_path / "shout.py"
    code.write_text("def map_item(item):\n    return item | {'state': item['state'] + '!'}\n")
    assert bulkexec("plan", "edit", "--table", name, "--map", str(code), "--all", "-o", str(file)).code == 0
    whole = file.read_text()
    file.write_text(whole.replace("+ '!'", "+ '?'"))
    refused = bulkexec.json("apply", str(file), "--yes")
    assert (refused.code, "changed after it was made" in refused.report["error"][0]) == (2, True)
    file.write_text(whole)
    code.unlink()
    assert bulkexec.json("apply", str(file), "--yes").report["processed"] == 30
    assert {item["state"]["S"] for item in tables.read(name)} == {"OLD!", "NEW!"}


def test_a_list_of_keys_that_changed_is_refused(bulkexec, tables, items, tmp_path):
    name, file, keys = tables.make(items(300, 100)), tmp_path / "plan.json", tmp_path / "keys"
    keys.write_text('{"pk": {"S": "k0000001"}}\n')
    arguments = ("plan", "delete", "--table", name, "--keys-from", str(keys), "-o", str(file))
    assert bulkexec(*arguments).code == 0
    keys.write_text('{"pk": {"S": "k0000002"}}\n')
    refused_as_stale(bulkexec, tables, name, file, "is not what it was")


def test_a_list_of_keys_in_s3_that_changed_is_refused(bulkexec, sandbox, tables, items, tmp_path):
    name, file, s3 = tables.make(items(300, 100)), tmp_path / "plan.json", sandbox.client("s3")
    bucket = f"lists-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="keys/1.json", Body=b'{"pk": {"S": "k0000001"}}\n')
    arguments = ("plan", "delete", "--table", name, "--keys-from", f"s3://{bucket}/keys", "-o", str(file))
    assert bulkexec(*arguments).code == 0
    s3.put_object(Bucket=bucket, Key="keys/2.json", Body=b'{"pk": {"S": "k0000002"}}\n')
    refused_as_stale(bulkexec, tables, name, file, "is not what it was")
    s3.delete_object(Bucket=bucket, Key="keys/2.json")
    assert bulkexec.json("apply", str(file), "--yes").code == 0, "it is again what it was"


def test_a_plan_is_a_document_too(bulkexec, tables, items, tmp_path):
    name, file = tables.make(items(10, 100)), tmp_path / "plan.json"
    outcome = bulkexec.json("plan", "count", "--table", name, "-o", str(file))
    assert outcome.code == 0
    assert outcome.report == json.loads(file.read_bytes())
    assert bulkexec.json("apply", str(file)).report["matched"] == 10


@pytest.mark.parametrize("file", ["missing.json", "no/such/folder/plan.json"])
def test_a_file_that_is_not_there_is_refused(bulkexec, file, tmp_path):
    refused = bulkexec.json("apply", str(tmp_path / file), "--yes")
    assert (refused.code, "BX100" in refused.report["error"][0]) == (2, True)


def test_results_of_each_run_are_its_own(bulkexec, tables, items, deployed, tmp_path):
    name, file = tables.make(items(10, 100)), tmp_path / "plan.json"
    results = f"s3://{deployed}/bulkexec/results"
    assert bulkexec("plan", "find", "--table", name, "--results", results, "-o", str(file)).code == 0
    first, second = (bulkexec.json("apply", str(file)).report["results"] for _ in range(2))
    assert first != second
