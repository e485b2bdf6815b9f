"""What a training may declare beside the plain loop: each changes what it says, and resumes bit for bit."""

import json
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
import toy_jobs
from test_loop import inf_gradient, loss_fn, never, started
from test_resume import outcome

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.prepare import prepare
from trainworthy.lifecycle.engine.training.random_state import random_state
from trainworthy.lifecycle.engine.training.techniques.average import Average
from trainworthy.lifecycle.engine.training.techniques.deadline import Deadline, make_deadline, seconds_a_row
from trainworthy.lifecycle.engine.training.techniques.early_stopping import EarlyStopping
from trainworthy.lifecycle.engine.training.techniques.scaler import INTERVAL, START, Scaler, scaler_of
from trainworthy.lifecycle.engine.training.watching.trace import Trace
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.plan import make_plan
from trainworthy.lifecycle.spec.training import EarlyStoppingSpec
from trainworthy.lifecycle.use_case import load_use_case

TECHNIQUES = {
    "fp16": {"precision": "fp16"},
    "wsd": {"schedule": {"warmup": 0.1, "decay": "wsd", "decay_share": 0.3}},
    "ema": {"ema": {"decay": 0.99}},
    "early stopping": {"early_stopping": {"every": 10, "patience": 100, "min_steps": 20}},
    "both": {"ema": {"decay": 0.9}, "early_stopping": {"every": 7, "patience": 100, "min_steps": 20}},
    "linear": {"schedule": {"warmup": 0.1, "decay": "linear"}},
}


def stopping_at(updates: int):
    """Asks to end at the boundary after that many updates, and never again."""
    calls = iter(range(1, 10**9))
    return lambda: next(calls) == updates


@pytest.mark.parametrize("name", TECHNIQUES)
def test_interrupted_training_ends_as_the_whole_one_bit_for_bit(name, splits, tmp_path):
    spec = toy_jobs.spec_with(training=TECHNIQUES[name] | {"checkpoint_every_steps": 1000})
    whole = run_stage(toy_jobs.train_job(splits, tmp_path / "whole", "full", spec=spec))
    job = toy_jobs.train_job(splits, tmp_path / "again", "full", spec=spec)
    for updates in (37, 61):
        with pytest.raises(PreemptedError):
            run_stage(job, stopping_at(updates))
    resumed = run_stage(job)
    assert resumed.resumed_from_step == 37 + 61
    assert outcome(resumed) == outcome(whole)
    assert resumed.artifact_sha256 == whole.artifact_sha256


def test_plain_training_keeps_the_state_of_the_loop_and_its_monitors(splits, tmp_path):
    result = run_stage(toy_jobs.train_job(splits, tmp_path, "smoke"))
    assert result.checkpoint is not None
    assert torch.load(Path(result.checkpoint.path) / "state.pt", weights_only=True)["also"].keys() == {"monitors"}


def half_precision(**functions):
    spec = toy_jobs.spec_with(training={"precision": "fp16"}).training
    state, data, plan, recipe = started(spec=spec, **functions)
    state.also |= scaler_of(recipe.precision)
    return state, data, plan, recipe


def test_fp16_computes_in_float16_and_keeps_the_weights_in_float32():
    seen = []

    def losses(outputs, targets):
        seen.append(outputs.dtype)
        return loss_fn(outputs, targets)

    state, data, plan, recipe = half_precision(loss_fn=losses)
    assert train(state, data, plan, recipe, never) is None
    assert set(seen) == {torch.float16}
    assert {parameter.dtype for parameter in state.model.parameters()} == {torch.float32}
    assert state.curve.points[-1].loss < 0.8 * state.curve.points[0].loss


def test_scaled_loss_gives_the_gradients_of_the_plain_one():
    after = []
    for scale in (1.0, 1024.0):
        state, data, plan, recipe = started()
        state.also["scaler"] = Scaler(scale)
        train(state, data, plan, recipe, lambda state, update: state.step == 3)
        after.append(parameters_sha256(state.model))
    # A power of two changes no bit of a float32 gradient.
    assert after[0] == after[1]


def test_overflow_leaves_out_the_update_and_halves_the_scale():
    state, data, plan, recipe = half_precision(loss_fn=lambda outputs, targets: loss_fn(outputs, targets) * 1e3)
    before = parameters_sha256(state.model)
    assert train(state, data, plan, recipe, lambda state, update: True) is None
    assert state.scaler == Scaler(START / 2, 0, overflows=1)
    assert (parameters_sha256(state.model), state.step) == (before, 1)
    assert train(state, data, plan, recipe, never) is None
    assert state.scaler.scale < START / 4
    assert state.curve.points[-1].loss < 0.95 * state.curve.points[0].loss


def test_overflow_that_no_scale_mends_is_an_alarm_with_the_weights_as_they_were():
    state, data, plan, recipe = half_precision(loss_fn=inf_gradient)
    before = parameters_sha256(state.model)
    alarm = train(state, data, plan, recipe, never)
    assert alarm is not None
    assert (alarm.monitor, alarm.step) == ("non_finite_gradient", 16)
    assert parameters_sha256(state.model) == before


def test_scale_doubles_after_an_interval_without_overflow():
    scaler = Scaler(scale=4.0)
    for _ in range(INTERVAL):
        scaler.update(True)
    assert scaler == Scaler(8.0, 0)


def test_average_follows_the_weights_and_leaves_the_training_as_it_was():
    sequences = []
    for averaged in (False, True):
        state, data, plan, recipe = started()
        average, weights = Average(state.model, decay=0.5), []

        def after(state, loss, averaged=averaged, average=average, weights=weights):
            weights.append([parameter.detach().clone() for parameter in state.model.parameters()])
            if averaged:
                average.update(state.model)
            return state.step == 5

        start = [parameter.detach().clone() for parameter in state.model.parameters()]
        train(state, data, plan, recipe, after)
        sequences.append(parameters_sha256(state.model))
    assert sequences[0] == sequences[1]
    wanted = start
    for number, now in enumerate(weights, start=1):
        decay = min(0.5, (1 + number) / (10 + number))
        wanted = [decay * one + (1 - decay) * other for one, other in zip(wanted, now, strict=True)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(wanted, average.weights.values(), strict=True))
    before = parameters_sha256(state.model)
    with average.in_place_of(state.model):
        assert parameters_sha256(state.model) != before
    assert parameters_sha256(state.model) == before


def test_average_is_what_is_validated_hashed_and_shipped_and_changes_no_update(splits, tmp_path):
    results = [
        run_stage(
            toy_jobs.train_job(splits, tmp_path / str(number), "full", spec=toy_jobs.spec_with(training=training))
        )
        for number, training in enumerate([{}, {"ema": {"decay": 0.99}}])
    ]
    plain, averaged = results
    assert averaged.curve == plain.curve
    assert averaged.prefix_sha256 == plain.prefix_sha256
    assert averaged.parameters_sha256 != plain.parameters_sha256
    assert averaged.artifact_sha256 != plain.artifact_sha256
    assert averaged.metrics["val_loss"] != plain.metrics["val_loss"]
    assert averaged.metrics["val_loss"] < averaged.metrics["val_loss_of_prior"]


# A rate at which the toy's network gets worse again after a few updates.
WORSENS = {
    "optimizer": {"learning_rate": 0.3}, "schedule": {"warmup": 0.0, "decay": "constant"}, "epochs": 20,
    "early_stopping": {"every": 5, "patience": 3, "min_steps": 40},
}  # fmt: skip


def test_early_stopping_ends_and_ships_the_weights_of_the_best_evaluation(splits, tmp_path):
    spec = toy_jobs.spec_with(training=WORSENS)
    result = run_stage(toy_jobs.train_job(splits, tmp_path / "out", "full", spec=spec))
    assert result.ended == "early"
    assert 40 <= result.steps < result.planned_steps
    assert result.checkpoint is not None
    found = torch.load(Path(result.checkpoint.path) / "state.pt", weights_only=True)["also"]["early_stopping"]
    assert found["best_step"] <= result.steps - 15
    assert result.metrics["val_loss"] == pytest.approx(found["best_loss"])
    steps = next(check for check in training_checks("full", result) if check.name == "steps")
    assert steps.status == "pass"
    assert f"early stopping ended at step {result.steps}" in steps.evidence
    # Killed after its last checkpoint and before its answer, it trains no further.
    again = run_stage(toy_jobs.train_job(splits, tmp_path / "out", "full", spec=spec))
    assert again.resumed_from_step == result.steps
    assert outcome(again) == outcome(result)
    assert again.artifact_sha256 == result.artifact_sha256


def test_evaluations_of_early_stopping_change_no_update(splits, tmp_path):
    never_ends = {"early_stopping": {"every": 3, "patience": 10_000, "min_steps": 20}}
    plain, evaluated = (
        run_stage(
            toy_jobs.train_job(splits, tmp_path / str(number), "full", spec=toy_jobs.spec_with(training=training))
        )
        for number, training in enumerate([{}, never_ends])
    )
    assert evaluated.curve == plain.curve
    assert evaluated.ended == ""
    assert evaluated.steps == plain.steps


def test_early_stopping_that_cannot_end_the_stage_says_so(splits, tmp_path):
    spec = toy_jobs.spec_with(training={"early_stopping": {"every": 5, "patience": 1, "min_steps": 10_000}})
    result = run_stage(toy_jobs.train_job(splits, tmp_path, "smoke", spec=spec))
    assert any("could not end it, since min_steps is 10000" in note for note in result.notes)


def test_early_stopping_of_a_continued_run_is_refused():
    with pytest.raises(ValueError, match=r"needs stages\.mode: restart"):
        toy_jobs.spec_with(training=WORSENS, stages={"mode": "continue"})


def test_identity_of_a_training_without_techniques_names_none(tmp_path):
    plain = load_use_case(toy_jobs.TOY)
    training = declared_sections(plain, "full")["training"]
    assert not {"ema", "early_stopping"} & training.keys()
    assert training["schedule"].keys() == {"warmup", "decay"}
    spec = toy_jobs.spec_with(training={"ema": {"decay": 0.9}})
    assert declared_sections(plain.model_copy(update={"spec": spec}), "full")["training"]["ema"] == {"decay": 0.9}


def test_stage_whose_budget_is_spent_ends_at_a_step_with_a_checkpoint_and_a_no_go(splits, tmp_path):
    spec = toy_jobs.spec_with(training={"batch_size": 32})
    job = toy_jobs.train_job(splits, tmp_path, "full", spec=spec, ends_at=time.time() - 1)
    result = run_stage(job)
    assert (result.ended, result.steps, result.alarm, result.artifact) == ("budget", 1, None, None)
    assert result.checkpoint is not None
    steps = next(check for check in training_checks("full", result) if check.name == "steps")
    assert steps.stops
    assert "budget" in steps.evidence
    assert "budget.run_usd" in steps.fix
    # With more money it goes on from there, and ends as if it had never stopped.
    richer = run_stage(toy_jobs.train_job(splits, tmp_path, "full", spec=spec, ends_at=time.time() + 3600))
    whole = run_stage(toy_jobs.train_job(splits, tmp_path / "whole", "full", spec=spec))
    assert richer.resumed_from_step == 1
    assert outcome(richer) == outcome(whole)


def test_deadline_leaves_room_for_an_update_a_checkpoint_and_the_evaluation(splits, tmp_path):
    now = [0.0]
    job = toy_jobs.train_job(splits, tmp_path, "full", ends_at=1000.0)
    rows = sum(len(pd.read_parquet(splits / f"{name}.parquet")) for name in ("validation", "calibration"))
    deadline = Deadline(job, prepare_seconds_per_row=0.01, batch_rows=100, clock=lambda: now[0])
    deadline.saved(7.0)
    # The first update starts all that updates need: loaders, kernels, imports.
    now[0] = 900.0
    assert not deadline.after_update()
    assert deadline.needed_seconds() == pytest.approx(7.0 + rows * 0.01)
    now[0] = 902.0
    still = 2.0 + 7.0 + rows * (0.01 + 0.02)
    assert deadline.after_update() == (902.0 + still >= 1000.0)
    assert deadline.needed_seconds() == pytest.approx(still)
    now[0] = 999.0
    assert deadline.after_update()
    assert deadline.reached


def test_trace_of_the_declared_updates_changes_no_result_and_no_identity(splits, tmp_path):
    traced, plain = ({"profile": {"after_steps": 3, "steps": 2}}, {})
    results = [
        run_stage(toy_jobs.train_job(splits, tmp_path / str(number), "smoke", spec=toy_jobs.spec_with(training=values)))
        for number, values in enumerate([traced, plain])
    ]
    assert outcome(results[0]) == outcome(results[1])
    events = json.loads((tmp_path / "0" / "trace.json").read_text())["traceEvents"]
    assert sum(event["name"].startswith("Optimizer.step") for event in events) == 2
    assert not (tmp_path / "1" / "trace.json").exists()
    assert any("trace.json" in note for note in results[0].notes)
    use_case = load_use_case(toy_jobs.TOY)
    changed = use_case.model_copy(update={"spec": toy_jobs.spec_with(training=traced)})
    assert declared_sections(changed, "full") == declared_sections(use_case, "full")


def test_deadline_leaves_room_for_the_pilot_s_regressions(splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path, "pilot", ends_at=1000.0)
    prepared = prepare(job, "cpu")
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage)
    before = random_state()
    deadline = make_deadline(job, prepared, plan, 0.0)
    assert deadline.beside_seconds > 0
    assert deadline.prepare_seconds_per_row > 0
    assert deadline.needed_seconds() >= deadline.beside_seconds
    assert random_state()["python"] == before["python"]
    assert torch.equal(random_state()["torch"], before["torch"])
    smoke = toy_jobs.train_job(splits, tmp_path, "smoke", ends_at=1000.0)
    assert make_deadline(smoke, prepared, plan, 0.0).beside_seconds == 0


def test_deadline_of_rows_that_loaders_prepare_counts_what_one_process_needs(splits, tmp_path):
    place = '    return {\n        "numbers"'
    slow = toy_jobs.changed_use_case(
        tmp_path / "toy", (place, f"    import time\n\n    time.sleep(len(rows) * 1e-4)\n{place}")
    )
    spec = toy_jobs.spec_with(training={"tensors": "per_batch"})
    job = toy_jobs.train_job(splits, tmp_path, spec=spec, use_case=slow, ends_at=1000.0)
    prepared = prepare(job, "cpu")
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage)
    assert make_deadline(job, prepared, plan, 0.0).prepare_seconds_per_row >= 1e-4


def test_seconds_a_row_are_those_of_so_many_that_a_call_counts_no_more():
    time, asked = [0.0], []

    def make(count: int) -> None:
        asked.append(count)
        # The first call also imports; each one costs something by itself.
        time[0] += (50.0 if len(asked) == 1 else 0.05) + count * 1e-4

    found = seconds_a_row(make, rows=1_000_000, first=100, now=lambda: time[0])
    assert asked == [12, 100, 400, 1600]
    assert found == pytest.approx(1e-4 + 0.05 / 1600)


def test_trace_that_fails_is_told_and_hides_nothing(splits, tmp_path, monkeypatch):
    def full(profiler, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", full)
    spec = toy_jobs.spec_with(training={"profile": {"after_steps": 3, "steps": 50}})
    calls = iter([False] * 5 + [True] * 1000)
    with pytest.raises(PreemptedError):
        run_stage(toy_jobs.train_job(splits, tmp_path, spec=spec), should_stop=lambda: next(calls))
    result = run_stage(toy_jobs.train_job(splits, tmp_path / "whole", spec=spec))
    assert any("no trace after step 3: OSError: [Errno 28] No space left" in note for note in result.notes)
    assert result.steps == result.planned_steps


def test_trace_tells_what_it_holds(splits, tmp_path):
    spec = toy_jobs.spec_with(training={"profile": {"after_steps": 3, "steps": 50}})
    job, calls = toy_jobs.train_job(splits, tmp_path, spec=spec), iter([False] * 5 + [True] * 1000)
    with pytest.raises(PreemptedError):
        run_stage(job, should_stop=lambda: next(calls))
    # The resumed attempt made no update that was asked for, and the file is not its own.
    resumed = run_stage(job)
    assert any("went on from a later step than 3; trace.json" in note for note in resumed.notes)
    trace = Trace(spec.training.profile, tmp_path / "other")
    for step in range(1, 6):
        trace.after_update(step)
    trace.close()
    assert trace.notes() == ("trace.json beside the checkpoints has 2 updates after step 3",)


def test_early_stopping_that_never_evaluated_tells_no_loss():
    stopping = EarlyStopping(EarlyStoppingSpec(every=5, patience=2, min_steps=20), lambda: float("nan"))
    assert stopping.summary == "nothing was evaluated"
    stopping.look(torch.nn.Linear(1, 1), 5)
    assert stopping.summary == "none of 1 evaluations had a finite loss"


def test_trace_after_the_last_update_is_told_to_be_missing(splits, tmp_path):
    spec = toy_jobs.spec_with(training={"profile": {"after_steps": 10_000, "steps": 2}})
    result = run_stage(toy_jobs.train_job(splits, tmp_path, "smoke", spec=spec))
    assert "no trace: this stage made no update after step 10000" in result.notes
