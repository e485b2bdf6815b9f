"""Several seeds of a stage through the real job: what the pilot tells before full starts, and what ships."""

import statistics

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


def test_full_with_three_seeds_has_their_spread_in_every_interval_of_a_gain(toy, trained):
    before = trained.toy.record(trained.done.run_id, "evaluation")
    assert all(one.seeds is None for one in before.comparisons)
    toy.edit("use_case.yaml", "seed: 7", "seed: 7\n  full_seeds: 3")
    done = toy.run()
    assert done.code == 0, done.out[-3000:]
    full, verdict = toy.record(done.run_id, "full"), toy.verdict(done.run_id)
    assert isinstance(full, StageReport)
    assert [one.seed for one in full.trained] == [7, 8, 9]
    # Of the calibrated answers, as the gain is.
    sd = statistics.stdev(one.validated["log_loss"] for one in full.trained)
    assert sd > 0
    assert {one.reference for one in verdict.comparisons} >= {"prior", "linear", "champion"}
    for one in verdict.comparisons:
        assert one.seeds is not None
        assert one.seeds.sd == pytest.approx(sd)
        rows = one.seeds.by_rows
        assert one.gain.value == rows.value
        if rows.has_width:
            assert one.gain.low < rows.low < rows.high < one.gain.high
            assert "the spread between 3 seeds" in one.gain.made
    told = (toy.var / "reports" / "toy" / f"{done.run_id}.html").read_text()
    assert "with the spread between 3 seeds" in told
