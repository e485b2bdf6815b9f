"""A family's check in Dagster: its trials as a table; and which jobs are meant for a GPU."""

import dagster as dg
import pytest

from trainworthy.assets.metadata import check_result
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.launcher import Launcher


def test_family_check_shows_its_trials_as_a_table():
    trials = (
        Trial(check="wiring.rows", status="pass", evidence="rows are apart", seconds=0.1234, device="cpu"),
        Trial(
            check="wiring.labels", status="fail", evidence="unused", symptom="it stays", cause="a leftover", fix="use"
        ),
    )
    details = tuple(trial.model_dump(mode="json") for trial in trials)
    shown = check_result(CheckResult(name="wiring", status="fail", evidence="one of two", details=details)).metadata
    assert "details" not in shown
    table = shown["checks"]
    assert isinstance(table, dg.TableMetadataValue)
    # What failed is shown first.
    second, first = (record.data for record in table.records)
    assert (first["check"], first["status"], first["seen"], first["seconds"]) == (
        "wiring.rows", "pass", "rows are apart", 0.123,
    )  # fmt: skip
    assert (second["symptom"], second["cause"], second["fix"]) == ("it stays", "a leftover", "use")


def test_check_without_trials_keeps_its_details():
    shown = check_result(CheckResult(name="contract", status="pass", details=({"rule": "known_shops"},))).metadata
    assert shown["details"].value == [{"rule": "known_shops"}]


@pytest.mark.parametrize(
    ("declared", "launcher", "uses"),
    [
        ({"device": "cuda"}, {}, True),
        ({"device": "auto", "gpus": 1}, {}, True),
        ({"device": "auto"}, {}, False),
        ({"device": "cpu", "gpus": 1}, {}, False),
        ({"device": "cuda"}, {"device": "cpu"}, False),
        ({"device": "cpu"}, {"device": "cuda"}, True),
    ],
)
def test_job_is_meant_for_a_gpu_as_declared(declared, launcher, uses):
    assert Launcher(**launcher).uses_cuda(ComputeSpec(sku="local-2cpu", **declared)) is uses
