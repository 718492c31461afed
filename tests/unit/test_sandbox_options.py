"""Options from the environment, and back through the server's argument."""

import pytest

from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.server import options_from_json, options_to_json


def test_options_come_from_the_environment() -> None:
    environment = {
        "BULKEXEC_SANDBOX_REGION": "eu-west-1",
        "BULKEXEC_SANDBOX_BURST_SECONDS": "300",
        "BULKEXEC_SANDBOX_FAULT_SEED": "7",
        "BULKEXEC_SANDBOX_DIR": "/elsewhere",
    }
    options = SandboxOptions.from_environment(environment, port=1)
    assert (options.port, options.region, options.burst_seconds, options.fault_seed) == (1, "eu-west-1", 300.0, 7)
    with pytest.raises(ValueError, match="soon"):
        SandboxOptions.from_environment({"BULKEXEC_SANDBOX_STOP_GRACE_SECONDS": "soon"})


def test_options_survive_the_way_to_the_server() -> None:
    options = SandboxOptions(port=1234, stop_grace_seconds=2.5, spark_master="local[1]")
    assert options_from_json(options_to_json(options)) == options


def test_iam_is_one_of_three_modes() -> None:
    assert SandboxOptions.from_environment({"BULKEXEC_SANDBOX_IAM": "record"}).iam == "record"
    with pytest.raises(ValueError, match="off, record, enforce"):
        SandboxOptions.from_environment({"BULKEXEC_SANDBOX_IAM": "on"})
