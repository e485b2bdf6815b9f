"""Several seeds of a stage through the real job: what the pilot tells before full starts, and what ships."""

import pytest

from trainworthy.lifecycle.protocol.records import StageReport

pytestmark = pytest.mark.slow


def test_pilot_with_three_seeds_tells_spread_and_curve_and_leaves_full_as_it_was(toy, trained):
    before = toy.record(trained.done.run_id, "full")
    toy.edit("use_case.yaml", "seed: 7", "seed: 7\n  pilot_seeds: 3")
    done = toy.run("experiment_toy")
    assert done.code == 0, done.out[-3000:]
    pilot, full = toy.record(done.run_id, "pilot"), toy.record(done.run_id, "full")
    assert isinstance(pilot, StageReport)
    assert isinstance(full, StageReport)
    assert isinstance(before, StageReport)
    assert (pilot.seed, [one.seed for one in pilot.trained]) == (7, [7, 8, 9])
    assert pilot.provenance.seeds == (7, 8, 9)
    # The training is the same one, and the worker's answer for it still lies there.
    assert full.parameters_sha256 == before.parameters_sha256
    assert full.training_run == before.training_run
    assert pilot.data_curve is not None
    assert f"data-learning curve: {pilot.data_curve.told}" in done.out
    shown = toy.materialized(done.run_id)
    assert shown["pilot"]["metric/val_loss_sd"] == pytest.approx(pilot.metrics["val_loss_sd"])
    assert "cost/avoided_usd" not in shown["pilot"]
    assert pilot.data_curve.told in (toy.var / "reports" / "toy" / f"{done.run_id}.html").read_text()
