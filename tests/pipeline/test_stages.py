"""Several seeds of both stages through the real job: what the pilot tells before full starts, and what ships."""

import statistics

import pytest

from trainworthy.lifecycle.protocol.records import StageReport

pytestmark = pytest.mark.slow


def test_three_seeds_of_pilot_and_full_tell_spread_and_curve_and_leave_the_first_seed_as_it_was(toy, trained):
    before = toy.record(trained.done.run_id, "full")
    assert isinstance(before, StageReport)
    assert all(one.seeds is None for one in toy.record(trained.done.run_id, "evaluation").comparisons)
    toy.edit("use_case.yaml", "seed: 7", "seed: 7\n  pilot_seeds: 3\n  full_seeds: 3")
    done = toy.run()
    assert done.code == 0, done.out[-3000:]
    pilot, full = toy.record(done.run_id, "pilot"), toy.record(done.run_id, "full")
    html = (toy.var / "reports" / "toy" / f"{done.run_id}.html").read_text()
    assert isinstance(pilot, StageReport)
    assert isinstance(full, StageReport)
    assert (pilot.seed, [one.seed for one in pilot.trained]) == (7, [7, 8, 9])
    assert pilot.provenance.seeds == (7, 8, 9)
    assert pilot.data_curve is not None
    assert f"data-learning curve: {pilot.data_curve.told}" in done.out
    shown = toy.materialized(done.run_id)
    assert shown["pilot"]["metric/val_loss_sd"] == pytest.approx(pilot.metrics["val_loss_sd"])
    assert "cost/avoided_usd" not in shown["pilot"]
    assert pilot.data_curve.told in html
    assert [one.seed for one in full.trained] == [7, 8, 9]
    # The first seed's training is the one that it was.
    assert full.trained[0].val_loss == before.metrics["val_loss"]
    # Of the calibrated answers, as the gain is.
    sd = statistics.stdev(one.validated["log_loss"] for one in full.trained)
    assert sd > 0
    verdict = toy.verdict(done.run_id)
    assert {one.reference for one in verdict.comparisons} >= {"prior", "linear"}
    for one in verdict.comparisons:
        assert one.seeds is not None
        assert one.seeds.sd == pytest.approx(sd)
        rows = one.seeds.by_rows
        assert one.gain.value == rows.value
        if rows.has_width:
            assert one.gain.low < rows.low < rows.high < one.gain.high
            assert "the spread between 3 seeds" in one.gain.made
    assert "with the spread between 3 seeds" in html
