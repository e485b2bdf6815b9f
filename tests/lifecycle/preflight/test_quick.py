"""The quick part of preflight: families that train nothing, on a snapshot's rows and on made ones."""

import pytest
import toy_jobs

from trainworthy.lifecycle.engine.preflight.quick import JUDGES_VALUES, run_quick
from trainworthy.lifecycle.protocol.checks import stops_the_step
from trainworthy.lifecycle.protocol.jobs import QuickJob

FAMILIES = {"configuration", "inputs", "one_batch", "start", "wiring"}
TWICE = ("return self.layers(", "return torch.sigmoid(self.layers("), ("dim=1)).squeeze(1)", "dim=1))).squeeze(1)")


def quick(splits, out, use_case=toy_jobs.TOY, **fields):
    spec = toy_jobs.SPEC
    files = {f"{name}_file": str(splits / f"{name}.parquet") for name in ("training", "validation")} if splits else {}
    job = QuickJob(
        use_case_folder=str(use_case), out=str(out), device="cpu", rows=toy_jobs.ROWS, training=spec.training,
        stages=spec.stages, hyperparameters=spec.hyperparameters, claims=spec.preflight, **files, **fields,
    )  # fmt: skip
    found = run_quick(job)
    return found, {one.check for one in found.trials if stops_the_step(one.status, one.severity, one.required)}


def test_healthy_rows_of_a_snapshot_are_asked_all_that_trains_nothing(splits, tmp_path):
    found, stopped = quick(splits, tmp_path)
    assert {one.family for one in found.trials} == FAMILIES
    assert stopped == set()
    assert found.untried == ""
    assert sum(one.optimizer_steps for one in found.trials) <= 10


def test_made_rows_are_asked_nothing_of_their_values(tmp_path):
    found, stopped = quick(None, tmp_path, made_rows=4_000)
    assert {one.family for one in found.trials} == FAMILIES - {"inputs"}
    assert not {one.check for one in found.trials} & set(JUDGES_VALUES)
    assert stopped == set()
    assert "inputs" in found.untried


@pytest.mark.parametrize("made", [0, 4_000])
def test_planted_sigmoid_is_found_on_either_rows(splits, tmp_path, made):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *TWICE)
    _, stopped = quick(None if made else splits, tmp_path / "out", use_case, made_rows=made)
    assert "wiring.logits" in stopped


def test_loss_that_no_update_goes_through_leaves_the_network_unasked(splits, tmp_path):
    mean = ('reduction="none")', 'reduction="none").mean()')
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", mean)
    found, stopped = quick(splits, tmp_path / "out", use_case)
    assert stopped == {"one_batch.train"}
    assert {one.family for one in found.trials} == FAMILIES - {"wiring"}
    assert not {"start.activations"} & {one.check for one in found.trials}
