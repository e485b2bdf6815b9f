"""A use case with its own training script through the whole job: from its rows to a verdict."""

import sys

import pytest
from toy_project import FIRST, ROOT

sys.path.insert(0, str(ROOT / "tests" / "lifecycle"))
sys.path.insert(0, str(ROOT / "tests" / "lifecycle" / "trainers"))
import own_trainers

pytestmark = pytest.mark.slow


def test_train_job_with_a_script_ends_with_a_verdict_that_tells_what_was_not_seen(fresh):
    (fresh.folder / "train.py").write_text(own_trainers.documented("epochs"))
    fresh.edit("use_case.yaml", "stages: {", "trainer: train.py\nstages: {")
    done = fresh.run(intent=FIRST)
    assert done.code == 0, done.out[-4000:]
    verdict = fresh.verdict(done.run_id)
    controls = {control.name: control.status for control in verdict.controls}
    assert controls == dict.fromkeys(("dataset", "benchmark", "cost", "reproducibility", "deployment"), "pass")
    full = fresh.record(done.run_id, "full")
    found = {check.name: check for check in full.checks}
    assert found["trainer"].status == "insufficient"
    assert "progressive validation" in found["trainer"].evidence
    assert "trainer: insufficient" in done.out
    assert full.artifact_sha256
    assert full.cost.wall_seconds > 0
    preflight = {check.name: check.status for check in fresh.record(done.run_id, "preflight").checks}
    assert preflight["trainer"] == "pass"
    # Run again, its answer is there: nothing is trained twice.
    again = fresh.run(intent=FIRST)
    assert again.code == 0, again.out[-4000:]
    assert fresh.record(again.run_id, "full").identity == full.identity
