"""What is done about an alarm: left out, gone back, lowered, stopped; and a resume that decides alike."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs
from made_signals import signals
from pydantic import ValidationError

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.monitors.curve import Plateau
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.spec.training import MonitorsSpec

# Without it, one value that is not finite would reach every row by the mean.
FIXED_SCALE = ("[float(training[name].mean()), float(training[name].std())]", "[0.0, 1.0]")
# An optimizer that makes weights of finite gradients not finite, at its 33rd update.
BAD_OPTIMIZER = (
    "def predict(",
    """class Bad(torch.optim.SGD):
    def step(self, closure=None):
        found = super().step(closure)
        weight = self.param_groups[0]["params"][PLACE]
        state = self.state[weight]
        state["made"] = state.get("made", 0) + 1
        if state["made"] == 33:
            with torch.no_grad():
                weight[0] = WHAT
        return found


def build_optimizers(model, optimizer):
    return [Bad(model.parameters(), lr=optimizer["learning_rate"], momentum=0.9)]


def predict(""",
)


def poisoned(rows: pd.DataFrame) -> pd.DataFrame:
    x1 = rows["x1"].copy()
    x1.iloc[[700, 2000]] = np.inf
    return rows.assign(x1=x1)


# Alarms of how long updates took or waited (data_wait, seen on a busy machine in one run of the two), or of what the
# process of the tests holds: they depend on what else the machine does.
OF_THE_MACHINE = {"throughput_drop", "data_wait", "hang", "gpu_idle", "memory_growth"}


def outcome(result: TrainResult) -> dict:
    """All that must be equal; paths, times, memory and the way there may differ."""
    left_out = {"artifact", "checkpoint", "gpu_seconds", "resumed_from_step", "notes", "metrics", "seconds"}
    metrics = {name: value for name, value in result.metrics.items() if name != "peak_memory_bytes"}
    # An incident is named after the folder that it lies in.
    alarms = [alarm.model_dump(exclude={"incident"}) for alarm in result.alarms]
    times = {"references": {"arms": {"__all__": {"cpu_seconds"}}}}
    kept = result.model_dump(exclude={**dict.fromkeys(left_out, True), **times})
    return {**kept, "metrics": metrics, "alarms": alarms}


@pytest.fixture(scope="module")
def sick(splits, tmp_path_factory) -> tuple[Path, Path]:
    """Split files with two bad rows, and the use case that does not notice them beforehand."""
    folder = tmp_path_factory.mktemp("sick")
    dropout = ("nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))",) * 2
    return (
        toy_jobs.copy_splits(splits, folder / "splits", training=poisoned),
        toy_jobs.changed_use_case(folder / "toy", FIXED_SCALE, dropout),
    )


def stage(sick, out: Path, end_at: tuple[int, ...] = (), every: int = 7, **monitors) -> TrainResult:
    """The full stage; it is asked to end, and started again, when it has made so many updates."""
    splits, use_case = sick
    training = {"checkpoint_every_steps": every, "batch_size": 64, "monitors": monitors}
    job = toy_jobs.train_job(splits, out, "full", use_case=use_case, spec=toy_jobs.spec_with(training=training))
    for count in end_at:
        asked = iter([False] * count)
        with pytest.raises(PreemptedError):
            run_stage(job, should_stop=lambda asked=asked: next(asked, True))
    result = run_stage(job)
    return result.model_copy(
        update={"alarms": [alarm for alarm in result.alarms if alarm.monitor not in OF_THE_MACHINE]}
    )


def all_finite(out: Path) -> bool:
    found = sorted((out / "checkpoints").glob("step-*"))
    states = [torch.load(path / "state.pt", weights_only=True)["model"] for path in found]
    return bool(states) and all(bool(torch.isfinite(t).all()) for state in states for t in state.values())


def skip_list(out: Path) -> dict:
    """What the policy has noted in the last checkpoint."""
    newest = max((out / "checkpoints").glob("step-*"))
    held = torch.load(newest / "state.pt", weights_only=True)["also"]["monitors"]
    return json.loads(held["json"])["policy"]


def trained(result: TrainResult, left_out: list[int]) -> int:
    """Updates that the finished windows of the curve count."""
    last = result.curve[-1].step
    return last - sum(step < last for step in left_out)


def test_skipped_batches_are_not_trained_on_and_the_stage_goes_on(sick, tmp_path):
    result = stage(sick, tmp_path / "out", non_finite="skip_batch")
    assert result.alarm is None
    assert result.steps == result.planned_steps
    assert [(alarm.monitor, alarm.action) for alarm in result.alarms] == [("non_finite_loss", "skip_batch")] * len(
        result.alarms
    )
    skipped = skip_list(tmp_path / "out")["skipped"]
    assert len(skipped) == sum(alarm.count for alarm in result.alarms)
    bad = pd.read_parquet(sick[0] / "training.parquet").iloc[[700, 2000]]["row_id"].astype(str)
    assert {row["row_id"] for alarm in result.alarms for row in alarm.row_keys} <= set(bad)
    assert len(skipped) >= 2
    assert sum(point.rows for point in result.curve) == 64 * trained(result, skipped)
    assert result.seconds.skipped > 0
    assert all_finite(tmp_path / "out")


@pytest.mark.parametrize("action", ["skip_batch", "roll_back", "lower_rate"])
def test_training_that_is_interrupted_after_an_alarm_ends_as_the_uninterrupted_one(sick, tmp_path, action):
    monitors = {"non_finite": action} | ({"most_times": 20} if action != "skip_batch" else {})
    whole = stage(sick, tmp_path / "whole", **monitors)
    assert whole.alarms
    assert whole.steps == whole.planned_steps
    first = whole.alarms[0].step
    # Also with checkpoints at other steps: which one it goes back to must not show.
    ended = stage(sick, tmp_path / "ended", end_at=(first + 3, 4, 40), every=5, **monitors)
    assert outcome(ended) == outcome(whole)
    assert all_finite(tmp_path / "ended")


def test_training_that_goes_back_leaves_out_the_batch_and_counts_the_rest_as_done_again(sick, tmp_path):
    result = stage(sick, tmp_path / "out", non_finite="roll_back", most_times=20)
    assert {alarm.action for alarm in result.alarms} == {"roll_back"}
    left_out = skip_list(tmp_path / "out")["passed_over"]
    assert left_out == sorted(alarm.step for alarm in result.alarms)
    assert sum(point.rows for point in result.curve) == 64 * trained(result, left_out)
    assert result.seconds.replayed > 0
    steps = [point.step for point in result.curve]
    assert steps == sorted(set(steps))


def test_training_that_has_gone_back_too_often_stops(sick, tmp_path):
    result = stage(sick, tmp_path / "out", non_finite="roll_back", most_times=1)
    assert [alarm.action for alarm in result.alarms] == ["roll_back", "stop"]
    assert result.alarm == result.alarms[1]
    assert "the training had gone back 1 times" in result.alarm.evidence
    assert result.steps == result.alarm.step


def test_lowered_rate_shows_in_the_curve_from_then_on(sick, tmp_path):
    plain, lowered = (
        stage(sick, tmp_path / action, non_finite=action) for action in ("skip_batch", "lower_rate")
    )  # fmt: skip
    first = lowered.alarms[0].step
    rates = {point.step: point.learning_rate for point in plain.curve}
    for point in lowered.curve:
        factor = point.learning_rate / rates[point.step]
        assert factor == 1.0 if point.step <= first else factor <= 0.5


def test_training_on_nothing_but_bad_batches_stops_soon(splits, tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", ("def predict(", "NAN = float('nan')\n\n\ndef predict("))
    source = (use_case / "model.py").read_text()
    (use_case / "model.py").write_text(
        source + "\n\n_given = loss_fn\n\n\ndef loss_fn(outputs, targets):\n    return _given(outputs, targets) * NAN\n"
    )
    result = stage((splits, use_case), tmp_path / "out", non_finite="skip_batch")
    assert result.alarm is not None
    assert result.alarm.step == 10
    assert "10 batches were left out already" in result.alarm.evidence


# The first row of the first parameter is of unknown shops, which no loss needs: seen before a checkpoint or at the
# closer look. The second parameter makes the next loss NaN. Which checkpoint is the newest depends on the disk.
@pytest.mark.parametrize(("place", "what", "seen"), [(0, "nan", (33, 40)), (0, "inf", (33, 40)), (1, "nan", (33, 33))])
def test_weights_that_an_optimizer_breaks_come_back_from_the_newest_checkpoint(splits, tmp_path, place, what, seen):
    broken = BAD_OPTIMIZER[1].replace("PLACE", str(place)).replace("WHAT", f"float('{what}')")
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (BAD_OPTIMIZER[0], broken))
    result = stage((splits, use_case), tmp_path / "out")
    assert result.alarm is not None
    assert result.alarm.monitor == "non_finite_parameter"
    assert seen[0] <= result.alarm.step <= seen[1]
    assert result.steps < 33
    # Back at the start where no checkpoint had been written yet.
    assert result.steps == 0 or all_finite(tmp_path / "out")
    spec = toy_jobs.spec_with(training={"batch_size": 64})
    job = toy_jobs.train_job(
        splits, tmp_path / "before", "full", use_case=use_case, spec=spec, stop_after_steps=result.steps
    )  # fmt: skip
    assert result.parameters_sha256 == run_stage(job).parameters_sha256


def test_weights_that_an_optimizer_breaks_again_and_again_stop_a_training_that_goes_back(splits, tmp_path):
    broken = BAD_OPTIMIZER[1].replace("PLACE", "1").replace("WHAT", "float('nan')").replace("== 33", "> 33")
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (BAD_OPTIMIZER[0], broken))
    result = stage((splits, use_case), tmp_path / "out", non_finite="roll_back")
    assert [alarm.action for alarm in result.alarms] == ["roll_back"] * 3 + ["stop"]
    assert result.alarm is not None
    assert all_finite(tmp_path / "out")


@pytest.mark.parametrize(
    ("monitors", "told"),
    [
        ({"non_finite": "warn"}, "skip_batch"),
        ({"loss_spike": "skip_batch"}, "roll_back"),
        ({"rate_factor": 0.1}, "only where an alarm's action is lower_rate"),
        ({"most_times": 5}, "only where an alarm's action is lower_rate or roll_back"),
    ],
)
def test_policy_without_sense_is_refused(monitors, told):
    with pytest.raises(ValidationError, match=told):
        MonitorsSpec(**monitors)


LAST_LAYER_ALONE = (
    "def predict(",
    """def build_optimizers(model, optimizer):
    return [torch.optim.AdamW(model.layers[3].parameters(), lr=optimizer["learning_rate"])]


def predict(""",
)


@pytest.mark.parametrize(("frozen", "told"), [((), {"not_in_optimizer"}), (("shop.*", "layers.0.*"), set())])
def test_parameters_that_no_optimizer_has_are_told_unless_they_are_declared_frozen(frozen, told, splits, tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", LAST_LAYER_ALONE)
    result = run_stage(toy_jobs.train_job(splits, tmp_path / "out", "pilot", use_case=use_case, frozen=frozen))
    assert {alarm.monitor for alarm in result.alarms} == told


def test_batch_left_out_and_rate_lowered_at_the_same_update_are_both_done():
    spec = MonitorsSpec(outlier_batch="skip_batch", exploding_gradients="lower_rate")
    model = torch.nn.Linear(2, 1)
    watch = Watch(model, spec, (), planned_steps=100)
    found = [
        Finding("outlier_batch", "warning", 30, 30, "one batch", "9"),
        Finding("exploding_gradients", "critical", 30, 10, "gradients grow", "40 times"),
    ]
    assert not watch._act(TrainState(model, (), step=30), found)
    assert {alarm.action for alarm in watch.alarms} == {"skip_batch", "lower_rate"}
    assert watch.policy.rate_factor(31) == spec.rate_factor


@pytest.mark.parametrize(("game", "told"), [(False, {"plateau"}), (True, set())])
def test_loss_that_does_not_fall_is_no_plateau_in_a_game(game, told):
    model = torch.nn.Linear(2, 1)
    watch = Watch(model, MonitorsSpec(), (Plateau(400),), planned_steps=400, game=game)
    for step in range(200):
        assert watch.judge(TrainState(model, (), step=step), signals(step)._replace(loss=0.69, squared=0.5))
    assert {alarm.monitor for alarm in watch.alarms} == told
