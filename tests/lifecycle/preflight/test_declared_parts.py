"""What a training declares beside its network is tried, counted and timed as it will train: average, early stopping."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs
from torch import nn
from torch.profiler import ProfilerActivity, profile

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight import determinism
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.configuration.disk_space import state_bytes
from trainworthy.lifecycle.engine.preflight.memory import forecast as memory_forecast
from trainworthy.lifecycle.engine.preflight.memory.forecast import (
    LAUNCHER_BYTES,
    fits_here,
    forecast_memory,
    passing_bytes,
    prepared_bytes,
    state_copy_bytes,
    step_memory,
)
from trainworthy.lifecycle.engine.preflight.memory.real_step import memory_levels
from trainworthy.lifecycle.engine.preflight.one_batch.checks import CHECKS
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.preflight.subject import Scored, Subject
from trainworthy.lifecycle.engine.preflight.throughput.seconds import run_time
from trainworthy.lifecycle.engine.preflight.throughput.step_time import measure_step
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.engine.training.techniques.average import Average
from trainworthy.lifecycle.engine.training.techniques.early_stopping import EarlyStopping
from trainworthy.lifecycle.engine.training.techniques.parts import move_average
from trainworthy.lifecycle.plan import Plan

BOTH = {"ema": {"decay": 0.9}, "early_stopping": {"every": 50, "patience": 3, "min_steps": 20}}


def job_and_sample(splits, tmp_path, training=BOTH):
    job = toy_jobs.preflight_job(splits, tmp_path, spec=toy_jobs.spec_with(training=training))
    return job, draw_sample(job, read_rows(job.training_file, job.rows), "cpu")


def tried(seen):
    checks = (*CHECKS, *determinism.CHECKS)
    one_batch = run_checks(checks[: len(CHECKS)], seen, device="cpu", not_applicable={})
    rest = run_checks(checks[len(CHECKS) :], seen[1].subject, device="cpu", not_applicable={})
    return {trial.check: trial for trial in (*one_batch, *rest)}


def test_average_and_early_stopping_go_through_checkpoint_resume_and_export(splits, tmp_path):
    found = tried(job_and_sample(splits, tmp_path))
    # No input of a table is what is predicted, place by place.
    assert found.pop("one_batch.ahead").status == "not_applicable"
    assert {trial.status for trial in found.values()} == {"pass"}
    assert "average, early stopping are equal" in found["one_batch.checkpoint"].evidence
    assert "average, early_stopping" in found["determinism.resume"].evidence


@pytest.mark.parametrize(
    ("part", "name", "checks"),
    [
        (Average, "average", ("one_batch.checkpoint", "determinism.resume")),
        # The resumed run's next evaluation is the best one, whatever was before.
        (EarlyStopping, "early_stopping", ("one_batch.checkpoint",)),
    ],
)
def test_part_that_does_not_come_back_from_a_checkpoint_is_found(splits, tmp_path, monkeypatch, part, name, checks):
    monkeypatch.setattr(part, "load_state_dict", lambda self, state: None)
    found = tried(job_and_sample(splits, tmp_path))
    for check in checks:
        assert found[check].status == "fail"
        assert name in found[check].evidence


def test_weights_that_are_shipped_are_those_of_the_best_evaluation(splits, tmp_path, monkeypatch):
    monkeypatch.setattr(EarlyStopping, "state_dict", lambda self: {})

    def keep_none(self, model, step):
        self.weights = {"layers.0.weight": torch.zeros(1)}
        return False

    monkeypatch.setattr(EarlyStopping, "look", keep_none)
    assert tried(job_and_sample(splits, tmp_path))["one_batch.export"].status == "error"


def test_checkpoint_holds_average_and_best_weights_as_often_as_the_weights(splits, tmp_path):
    plain, adam = state_bytes(job_and_sample(splits, tmp_path / "plain", {})[1].subject)
    weights, beside = state_bytes(job_and_sample(splits, tmp_path / "both")[1].subject)
    assert weights == plain
    assert beside == adam + 2 * weights


def test_evaluations_are_a_part_of_the_time(splits, tmp_path, ticks):
    job, sample = job_and_sample(splits, tmp_path)
    rows, step = read_rows(job.training_file, job.rows), measure_step(sample.subject)
    seldom = run_time(job, sample, rows, step, 1.0, ())
    assert seldom.evaluate_seconds > 0
    often = job.model_copy(update={"training": toy_jobs.spec_with(training=BOTH | {"early_stopping": {
        "every": 1, "patience": 3, "min_steps": 20}}).training})  # fmt: skip
    assert run_time(often, sample, rows, step, 1.0, ()).evaluate_seconds > 40 * seldom.evaluate_seconds
    never = job.model_copy(update={"training": toy_jobs.SPEC.training})
    assert run_time(never, sample, rows, step, 1.0, ()).evaluate_seconds == 0


class Wide(nn.Module):
    """Holds hundreds of times its row while it is scored."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 1))

    def forward(self, inputs):
        return self.layers(inputs["x"]).squeeze(1)


def wide(**fields) -> Subject:
    def build():
        torch.manual_seed(0)
        return Wide()

    data = TrainData({"x": torch.randn(64, 8)}, torch.ones(64))
    recipe = Recipe(
        lambda o, t: nn.functional.binary_cross_entropy_with_logits(o.float(), t, reduction="none"),
        learning_rate=lambda step: 1e-3, clip_norm=1.0,
    )  # fmt: skip
    plan = Plan(rows=64, batch_size=16, steps_per_epoch=4, horizon_steps=20, first_step=0, last_step=20, seed=0)
    optimizers = lambda model: (torch.optim.AdamW(model.parameters()),)
    return Subject(build, optimizers, recipe, data, data, plan, **fields)


def averaged(model):
    return {"average": Average(model, 0.9)}


def allocated(of: Subject, scored_rows: int = 0) -> int:
    """The allocator's peak over two updates, and a forward pass of so many rows after them."""
    rows = torch.arange(of.plan.batch_size)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        state = of.state()
        for state.step in range(2):
            train_step(state, of.training, rows, of.recipe)
            move_average(state)
        if scored_rows:
            state.model.eval()
            with torch.no_grad():
                state.model({"x": torch.randn(scored_rows, 8)})
    return max(memory_levels(profiled)[1])


def forecast(of: Subject):
    found = step_memory(of, {}, repr, lambda forecast: True)
    assert found.forecast is not None
    return found.forecast


def test_average_is_counted_as_a_copy_of_the_weights():
    of = wide(parts=averaged)
    found = forecast(of)
    assert found.kinds["average"] == found.kinds["parameters"]
    assert found.value == pytest.approx(allocated(of), rel=0.01)


def test_scoring_of_many_rows_at_once_is_forecast_where_it_holds_more_than_an_update():
    of = wide(parts=averaged, scored=Scored(rows=100_000, chunk=20_000))
    found, real = forecast(of), allocated(of, 20_000)
    assert found.scoring == pytest.approx(real, rel=0.02)
    assert found.peak[0] == found.scoring > 10 * found.value
    few = forecast(replace(of, scored=Scored(rows=10, chunk=20_000)))
    assert few.peak[0] == few.value


def test_process_that_scoring_alone_makes_too_large_does_not_fit(splits, tmp_path):
    job, sample = job_and_sample(splits, tmp_path, {})
    rows = read_rows(job.training_file, job.rows)
    step = forecast(wide())
    large = step.model_copy(update={"scoring": 3 * 2**30})
    fits = [fits_here(forecast_memory(job, sample, rows, one), one, 3 * 2**30, "cpu") for one in (step, large)]
    assert fits == [True, False]


def test_checkpoints_copy_counts_average_and_best_weights(splits, tmp_path):
    plain, found = forecast(wide()), forecast(wide(parts=averaged))
    weights = plain.kinds["parameters"]
    assert state_copy_bytes(found) == state_copy_bytes(plain) + weights
    # The best weights lie on the host, and are copied for a checkpoint.
    assert state_copy_bytes(found, best_weights=True) == state_copy_bytes(found) + 2 * weights
    kept = [job_and_sample(splits, tmp_path, training)[1].subject.scored for training in ({}, BOTH)]
    assert [scored is not None and scored.kept for scored in kept] == [False, True]


def test_host_holds_rows_and_state_once_for_each_process(splits, tmp_path):
    job, sample = job_and_sample(splits, tmp_path, {})
    rows = read_rows(job.training_file, job.rows)
    of = wide()

    def held(processes):
        seen = replace(sample, subject=replace(sample.subject, processes=processes))
        step = forecast(replace(of, processes=processes))
        return forecast_memory(job, seen, rows, step).value - step.together[0] - state_copy_bytes(step)

    alone, two, three = (held(processes) for processes in (1, 2, 3))
    # What this process holds may move between two looks.
    assert two - LAUNCHER_BYTES == pytest.approx(2 * alone, rel=0.1)
    assert three - two == pytest.approx(alone, rel=0.1)


def test_rows_on_the_disk_count_as_what_fitting_takes_and_not_as_rows(splits, tmp_path):
    job, sample = job_and_sample(splits, tmp_path, {"tensors": "per_batch"})
    few = read_rows(job.training_file, job.rows)
    few = pd.concat([few] * (200_000 // len(few) + 1), ignore_index=True)
    few.to_parquet(tmp_path / "rows.parquet", index=False)
    mapped = read_rows(str(tmp_path / "rows.parquet"), job.rows, mapped_in=tmp_path / "out")

    def taken(fit):
        task = SimpleNamespace(**vars(sample.task) | {"fit_preprocessing": fit})
        return prepared_bytes(job, replace(sample, task=task), mapped) / len(mapped)

    # The toy's model takes the mean and the deviation of one column at a time: a few copies of its 8 bytes a row.
    assert 0 < prepared_bytes(job, sample, mapped) / len(mapped) < 80
    assert taken(lambda training, given: {"sum": float(np.stack([training["x1"].to_numpy(float)] * 16).sum())}) > 100
    # Texts lie in another library's memory.
    assert taken(lambda training, given: {"all": len(training["shop"] + "-" * 200)}) > 100

    def raises(training, given):
        raise ValueError("nothing to fit")

    copied = few[list(job.rows.features)].memory_usage(deep=False).sum()
    assert taken(raises) == pytest.approx(copied / len(few), rel=0.2)
    # Rows that are in memory are copied.
    ahead = replace(sample, subject=replace(sample.subject, loaded=None))
    assert prepared_bytes(job, ahead, few) == copied


@pytest.mark.parametrize("part", ["fit_preprocessing", "to_tensors"])
def test_what_files_take_while_their_tensors_are_made_is_forecast(splits, tmp_path, part):
    job, sample = job_and_sample(splits, tmp_path, {})
    rows, step = read_rows(job.training_file, job.rows), forecast(wide())
    numbers = 100_000

    def spends(rows, given):
        # As a spectrogram does: many numbers a row by the way, and few at the end.
        np.ones((len(rows), numbers)).sum()
        return getattr(sample.task, part)(rows, given)

    heavy = replace(sample, task=SimpleNamespace(**vars(sample.task) | {part: spends}))
    files = job.model_copy(update={"rows": job.rows.model_copy(update={"files": ("x1",)})})
    taken = passing_bytes(files, heavy)
    assert taken == pytest.approx(8 * numbers, rel=0.15)
    assert passing_bytes(files, sample) < 0.02 * taken
    # Of rows that are no files it would be noise.
    assert passing_bytes(job, heavy) == 0.0
    plain = forecast_memory(job, sample, rows, step)
    more = forecast_memory(job, replace(sample, passing=taken), rows, step)
    beside = step.together[0] + state_copy_bytes(step)
    assert more.value - plain.value == pytest.approx(taken * len(rows) - beside, rel=0.1)
    # What is over before the first update counts only where it is the larger one.
    little = forecast_memory(job, replace(sample, passing=1e-3 * beside / len(rows)), rows, step)
    assert little.value == pytest.approx(plain.value, rel=0.05)


def test_pages_of_rows_on_the_disk_are_no_part_of_what_a_process_will_hold(splits, tmp_path, monkeypatch):
    job, sample = job_and_sample(splits, tmp_path, {"tensors": "per_batch"})
    rows, step, found = read_rows(job.training_file, job.rows), forecast(wide()), []
    for pages in (0, 200_000_000):
        monkeypatch.setattr(memory_forecast, "mapped_bytes", lambda pages=pages: pages)
        found.append(forecast_memory(job, sample, rows, step).value)
    assert found[0] - found[1] == pytest.approx(200_000_000, rel=0.1)


def test_start_of_several_processes_is_forecast_with_that_of_whoever_starts_them(splits, tmp_path):
    job, sample = job_and_sample(splits, tmp_path, {})
    rows, step = read_rows(job.training_file, job.rows), measure_step(sample.subject)
    several = job.model_copy(update={"processes": 2})
    alone, two = (run_time(one, sample, rows, step, 1.5, ()) for one in (job, several))
    assert (alone.start_seconds, two.start_seconds) == (1.5 * alone.workers, 3.0 * alone.workers)
