"""The pilot's other seeds: one that gives no answer is told, and neither stops the pilot nor is it free."""

import math
from types import SimpleNamespace

import pytest

from trainworthy.assets import training
from trainworthy.assets.training import _trainings
from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.gates import seeds
from trainworthy.lifecycle.gates.seeds import lost_gpu_seconds, seed_results, seeds_check, spread
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.protocol.training_figures import Attempt, StageSeconds
from trainworthy.lifecycle.use_case import load_use_case

TOY = training.Path(__file__).parents[1] / "toy" / "use_cases" / "toy"


def answer(val_loss: float) -> TrainResult:
    """A training of the pilot that its checks let pass."""
    return TrainResult(
        alarm=None, rows=100, steps=10, planned_steps=10, resumed_from_step=0, parameters=3, parameters_sha256="a",
        prefix_steps=1, prefix_sha256="b", checkpoint=None, metrics={"val_loss": val_loss, "val_auc": 0.7},
        references=None, curve=(), seconds=StageSeconds(), device="cuda", gpu_seconds=2.0,
    )  # fmt: skip


def crash() -> WorkerError:
    ended = Attempt(cause="killed", told="the worker was killed", from_step=0, to_step=0, seconds=4.0)
    return WorkerError("the worker was killed", fix="look", exit_code=-9, cause="killed", attempts=(ended, ended))


@pytest.fixture
def trained(monkeypatch):
    """What a stage's trainings give when each seed ends as asked: a loss, or None for a crash."""
    monkeypatch.setattr(training, "train_job", lambda *given, **how: SimpleNamespace(seed=given[4], out="out"))
    monkeypatch.setattr(training, "_mirrored", lambda run, folder: training.contextlib.nullcontext())
    for module in (training, seeds):
        monkeypatch.setattr(module, "training_checks", lambda stage, result: ())

    def all_of(stage: str, losses: dict[int, float | None]):
        spec = load_use_case(TOY).spec
        several = {f"{stage}_seeds": len(losses), "seed": min(losses)}
        spec = spec.model_copy(update={"training": spec.training.model_copy(update=several)})

        def in_worker(job, left):
            loss = losses[job.seed]
            if loss is None:
                raise crash()
            return answer(loss)

        run_ = SimpleNamespace(
            use_case=SimpleNamespace(spec=spec), rented=Sku(usd_per_hour=0.0), in_worker=in_worker,
            context=SimpleNamespace(log=SimpleNamespace(warning=lambda line: None)),
        )  # fmt: skip
        return _trainings(run_, None, "run", stage, Meter(), 0.0)  # pyright: ignore[reportArgumentType]

    return all_of


def test_other_seed_that_crashes_is_told_with_the_spread_of_those_that_did_not(trained):
    results, lost = trained("pilot", {7: 0.5, 8: None, 9: 0.6})
    assert (list(results), list(lost)) == ([7, 9], [8])
    brief = seed_results("pilot", results, "auc", lost)
    assert spread(brief)["val_loss_sd"] == pytest.approx(0.1 / math.sqrt(2))
    check = seeds_check("pilot", brief, 7)
    assert (check.status, check.stops) == ("insufficient", False)
    assert "seed 8 gave no answer: the worker was killed" in check.evidence
    assert "sd of validation loss" in check.evidence
    assert lost_gpu_seconds("cuda", lost) == 8.0
    assert lost_gpu_seconds("cpu", lost) == 0.0


def test_spread_is_insufficient_where_all_other_seeds_crashed(trained):
    results, lost = trained("pilot", {7: 0.5, 8: None, 9: None})
    brief = seed_results("pilot", results, "auc", lost)
    assert spread(brief) == {}
    check = seeds_check("pilot", brief, 7)
    assert check.status == "insufficient"
    assert "no spread" in check.evidence


@pytest.mark.parametrize(("stage", "losses"), [("pilot", {7: None, 8: 0.5}), ("full", {7: 0.5, 8: None, 9: 0.5})])
def test_seed_that_decides_stops_the_stage_when_it_crashes(trained, stage, losses):
    with pytest.raises(WorkerError, match="was killed"):
        trained(stage, losses)
