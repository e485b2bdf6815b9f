"""Several trainings of a stage: which counts, how far they lie apart, and a training that depends on luck."""

from pathlib import Path

import pandas as pd
import pytest
import toy_jobs
from pydantic import ValidationError

from trainworthy.lifecycle.artifact import load_artifact
from trainworthy.lifecycle.cost.duration import remaining_cost
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.gates.seeds import (
    of_seed,
    one_that_counts,
    seed_results,
    seeds_check,
    seeds_of,
    spread,
    updates_of_stages,
)
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.metric import value

SPEC = toy_jobs.spec_with(training={"pilot_seeds": 3, "full_seeds": 3})
PREFLIGHT = Forecast(name="cost", unit="usd", value=10.0, low=6.0, high=20.0)


@pytest.fixture(scope="module")
def pilots(splits, tmp_path_factory) -> dict[int, TrainResult]:
    """The toy's pilot with three seeds, each in a folder of its own, as the worker is asked for them."""
    results = {}
    for seed in seeds_of(SPEC.training, "pilot"):
        out, spec = tmp_path_factory.mktemp(f"seed_{seed}"), of_seed(SPEC.training, seed)
        job = toy_jobs.train_job(splits, out, "pilot", identity=f"toy:pilot_seed_{seed}", training=spec)
        results[seed] = run_stage(job)
    return results


def test_seeds_of_each_stage_begin_with_the_declared_one():
    assert [seeds_of(SPEC.training, stage) for stage in ("smoke", "pilot", "full")] == [(7,), (7, 8, 9), (7, 8, 9)]
    assert seeds_of(toy_jobs.SPEC.training, "pilot") == (7,)


def test_seeds_that_are_healthy_pass_and_their_spread_is_measured(pilots):
    trained = seed_results("pilot", pilots, "auc")
    assert [one.seed for one in trained] == [7, 8, 9]
    assert {one.stopped_by for one in trained} == {()}
    assert 0 < spread(trained)["val_loss_sd"] < 0.1
    # A pilot makes no artifact, so nothing of it is calibrated.
    assert all(one.validated == {} for one in trained)
    assert seeds_check("pilot", trained, 7).status == "pass"
    assert len({result.parameters_sha256 for result in pilots.values()}) == 3


def test_full_tells_the_metrics_of_its_artifacts_calibrated_answers_to_the_validation_rows(splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path, "full")
    result = run_stage(job)
    assert result.artifact is not None
    assert result.artifact_sha256 is not None
    rows = pd.read_parquet(job.validation_file)
    answers = load_artifact(Path(result.artifact), result.artifact_sha256)(rows)
    # Any metric of the kind may be the primary one, so that seeds are compared in it.
    for name in ("log_loss", "auc", "brier"):
        shipped = value(BINARY.metrics[name], *BINARY.checked(rows[job.rows.label].to_numpy(), answers))
        assert result.artifact_metrics[name] == pytest.approx(shipped, rel=1e-5)
    assert result.artifact_metrics["log_loss"] != pytest.approx(result.metrics["val_loss"], rel=1e-5)
    trained = seed_results("full", {7: result, 8: result}, "auc")
    assert [one.validated for one in trained] == [result.artifact_metrics] * 2


def test_seeds_where_another_one_would_be_stopped_warn_and_name_it(pilots):
    progress = pilots[8].progress
    unmoved = progress.model_copy(
        update={"fall": progress.fall.model_copy(update=dict.fromkeys(("value", "high"), 0.0))}
    )
    trained = seed_results("pilot", pilots | {8: pilots[8].model_copy(update={"progress": unmoved})}, "auc")
    check = seeds_check("pilot", trained, 7)
    assert check.status == "fail"
    assert not check.stops
    assert "seed 8 by references" in check.evidence
    assert check.fix


def test_seeds_of_one_training_are_not_measured():
    assert seed_results("pilot", {}, "auc") == ()
    assert spread(()) == {}
    check = seeds_check("pilot", (), 7)
    assert check.status == "not_applicable"
    assert "training.pilot_seeds: 3" in check.evidence


@pytest.mark.parametrize(
    ("losses", "counts"),
    [((0.5, 0.4, 0.6), 7), ((0.4, 0.6, 0.5), 9), ((None, 0.4, 0.5), 9), ((float("nan"), 0.4, 0.5), 9)],
)
def test_seed_with_the_median_loss_ships_and_the_declared_one_passes_the_pilot(pilots, losses, counts):
    results = {
        seed: pilots[7].model_copy(update={"metrics": {} if loss is None else {"val_loss": loss}})
        for seed, loss in zip((7, 8, 9), losses, strict=True)
    }
    assert one_that_counts("full", results) == counts
    assert one_that_counts("pilot", results) == 7


def test_seed_that_the_budget_ended_counts_so_that_full_is_no_go(pilots):
    results = {7: pilots[7], 8: pilots[7].model_copy(update={"ended": "budget", "steps": 3})}
    assert one_that_counts("full", results) == 8
    steps = next(check for check in training_checks("full", results[8]) if check.name == "steps")
    assert steps.stops


def test_seed_that_was_interrupted_resumes_to_the_same_weights_in_its_own_folder(splits, tmp_path, pilots):
    job = toy_jobs.train_job(splits, tmp_path, "pilot", identity="toy:pilot_seed_8", training=of_seed(SPEC.training, 8))
    calls = iter([False] * 30 + [True] * 1000)
    with pytest.raises(PreemptedError):
        run_stage(job, should_stop=lambda: next(calls))
    resumed = run_stage(job)
    assert resumed.resumed_from_step == 31
    assert resumed.parameters_sha256 == pilots[8].parameters_sha256
    assert resumed.checkpoint is not None
    verify_checkpoint(tmp_path / "checkpoints" / resumed.checkpoint.path.split("/")[-1], resumed.checkpoint.sha256)


def test_full_seeds_of_an_even_number_are_refused():
    with pytest.raises(ValidationError, match="odd"):
        toy_jobs.spec_with(training={"full_seeds": 2})


def test_updates_count_every_training_of_a_stage():
    one = updates_of_stages(6000, 3000, toy_jobs.SPEC.training, toy_jobs.SPEC.stages)
    three = updates_of_stages(6000, 3000, SPEC.training, SPEC.stages)
    assert three == {"smoke": one["smoke"], "pilot": 3 * one["pilot"], "full": 3 * one["full"]}


def test_updates_of_other_seeds_in_mode_continue_begin_anew():
    stages = toy_jobs.spec_with(stages={"mode": "continue"}).stages
    one = updates_of_stages(6000, 3000, toy_jobs.SPEC.training, stages)
    three = updates_of_stages(6000, 3000, SPEC.training, stages)
    begun = one["smoke"] + one["pilot"]
    assert three["pilot"] == one["pilot"] + 2 * begun
    assert three["full"] == one["full"] + 2 * (begun + one["full"])


def test_remaining_cost_is_the_share_of_the_updates_with_its_interval():
    from report_records import preflight

    report = preflight().model_copy(update={"cost_usd": PREFLIGHT})
    found = remaining_cost(report, {"smoke": 10, "pilot": 30, "full": 160}, "pilot")
    assert found is not None
    assert (found.low, found.value, found.high) == pytest.approx((4.8, 8.0, 16.0))
    nothing = remaining_cost(report, {"smoke": 10, "pilot": 30, "full": 160}, "full")
    assert nothing is not None
    assert nothing.high == 0
    assert remaining_cost(None, {"smoke": 1, "pilot": 1, "full": 1}, "smoke") is None


def test_seed_result_of_a_training_without_a_loss_counts_in_no_spread():
    trained = [SeedResult(seed=n, val_loss=loss, resumed_from_step=0) for n, loss in ((7, 0.5), (8, None))]
    assert spread(trained) == {}


def test_seed_result_of_another_kind_has_its_score_and_an_old_one_its_auc():
    old = [SeedResult(seed=n, val_loss=0.5, val_auc=auc, resumed_from_step=0) for n, auc in ((7, 0.7), (8, 0.8))]
    new = [
        SeedResult(seed=n, val_loss=1703.0, val_score=mae, score="mae", resumed_from_step=0)
        for n, mae in ((7, 24.0), (8, 26.0))
    ]
    assert [one.scored for one in (*old, *new)] == [0.7, 0.8, 24.0, 26.0]
    assert list(spread(old)) == ["val_loss_sd", "val_auc_sd"]
    assert spread(new) == {"val_loss_sd": 0.0, "val_mae_sd": pytest.approx(2**0.5)}
    assert "sd of validation MAE 1.4" in seeds_check("pilot", new, 7).evidence
