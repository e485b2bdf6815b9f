"""Replays of real trainings: bit for bit, the first bad operation, and the rows that do it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import stages
import toy_jobs as toy

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.errors import IncidentError
from trainworthy.lifecycle.incidents.incident import read_incident
from trainworthy.lifecycle.incidents.text import replay_text
from trainworthy.lifecycle.protocol.jobs import ReplayJob
from trainworthy.lifecycle.protocol.results import ResultFile


@pytest.fixture(scope="module")
def log_of_zero(splits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The incident of a training that met a log of 0 in one row, at step 43 with a checkpoint at 25."""
    folder = tmp_path_factory.mktemp("log")
    return stages.train(splits, folder, stages.LOG, stages.PLAIN, rows=stages.one_row("x1", 1e6))[1]


def test_log_of_zero_in_one_row_is_replayed_bit_for_bit_with_line_and_row(log_of_zero: Path):
    result, incident = stages.replay(log_of_zero), read_incident(log_of_zero)
    assert result.reproduced == "bit_for_bit"
    assert (result.from_step, result.agreed) == (25, result.on_the_way)
    assert result.on_the_way == incident.step - 25
    assert result.first_bad is not None
    assert (result.first_bad.operation, result.first_bad.phase) == ("log", "forward")
    assert result.first_bad.line.startswith("model.py:38 in loss_fn")
    assert [(row.row, row.key) for row in result.rows] == [(1234, dict(incident.alarm.row_keys[0]))]
    assert result.notes == ()
    told = replay_text(incident, result)
    assert "reproduced bit for bit" in told
    assert "log, model.py:38 in loss_fn (forward)" in told
    assert "cause: the first bad operation above" in told


def test_infinite_feature_is_named_with_its_row(splits: Path, tmp_path: Path):
    _, incident = stages.train(splits, tmp_path, stages.PLAIN, rows=stages.one_row("x2", float("inf")))
    result = stages.replay(incident)
    assert result.reproduced == "bit_for_bit"
    assert result.first_bad is not None
    assert (result.first_bad.phase, "input numbers" in result.first_bad.evidence) == ("before", True)
    assert [row.row for row in result.rows] == [1234]
    assert "input numbers" in result.rows[0].told


def test_sensitive_feature_s_row_is_named_without_what_is_odd_in_it(splits: Path, tmp_path: Path):
    _, incident = stages.train(
        splits, tmp_path, stages.PLAIN, rows=stages.one_row("x2", float("inf")), sensitive=("x2",)
    )
    result = stages.replay(incident)
    assert [row.row for row in result.rows] == [1234]
    assert "sensitive" in result.rows[0].told
    assert "numbers" not in result.rows[0].told


def test_finite_loss_with_a_gradient_of_sqrt_at_zero_is_found_on_the_way_back_in_one_row(splits: Path, tmp_path: Path):
    _, incident = stages.train(splits, tmp_path, stages.SQRT, stages.PLAIN, rows=stages.one_row("x1", 1e7))
    result = stages.replay(incident)
    assert result.reproduced == "bit_for_bit"
    assert result.first_bad is not None
    assert (result.first_bad.phase, result.first_bad.node) == ("backward", "SqrtBackward0")
    assert result.first_bad.line.startswith("model.py:")
    assert [row.row for row in result.rows] == [1234]
    assert "1 of 128 rows do it alone" in result.rows_told


@pytest.mark.parametrize(
    "training",
    [
        {"accumulate": 4, "batch_size": 32},
        {"ema": {"decay": 0.99}},
        {"tensors": "per_batch"},
        {"reserve": 0.1, "evaluate_every": 5},
        {"oversampling": "balanced"},
        {"class_weights": "balanced"},
        {"focal_gamma": 2.0},
        {"optimizer": {"name": "sgd", "learning_rate": 0.05, "weight_decay": 0.0}},
    ],
    ids=lambda training: next(iter(training)),
)  # fmt: skip
def test_log_of_zero_is_replayed_bit_for_bit_however_it_was_trained(splits: Path, tmp_path: Path, training: dict):
    _, incident = stages.train(splits, tmp_path, stages.LOG, stages.PLAIN, rows=stages.one_row("x1", 1e6), **training)
    result, alarm = stages.replay(incident), read_incident(incident).alarm
    assert (result.reproduced, result.agreed) == ("bit_for_bit", result.on_the_way), result.notes
    assert result.first_bad is not None
    assert result.first_bad.operation == "log"
    # By its key, since a reserve is taken from the rows before they are numbered.
    row = {"row_id": str(pd.read_parquet(tmp_path / "splits" / "training.parquet")["row_id"].iloc[1234])}
    assert [row.key for row in result.rows] == [dict(alarm.row_keys[0])] == [row]


@pytest.mark.slow
def test_compiled_training_is_replayed_as_it_is_written_and_says_so(splits: Path, tmp_path: Path):
    _, incident = stages.train(
        splits, tmp_path, stages.LOG, stages.PLAIN, rows=stages.one_row("x1", 1e6), compile=True
    )  # fmt: skip
    result = stages.replay(incident)
    assert result.reproduced in ("bit_for_bit", "within_tolerance")
    assert result.elsewhere == ("updates as they are written instead of compiled ones",)
    assert result.first_bad is not None
    assert (result.first_bad.operation, [row.row for row in result.rows]) == ("log", [1234])


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_overflow_in_sixteen_bits_is_found_with_its_type(splits: Path, tmp_path: Path, precision: str):
    factor = "1e30" if precision == "fp16" else "3e38"
    layer = (
        f"with torch.autocast('cpu', enabled=False):\n        outputs = outputs * {factor} * {factor}\n    {stages.BCE}"
    )
    _, incident = stages.train(splits, tmp_path, (stages.BCE, layer), precision=precision)
    result = stages.replay(incident)
    assert result.reproduced == "bit_for_bit"
    assert result.first_bad is not None
    assert (result.first_bad.operation, result.first_bad.phase) == ("mul", "forward")
    assert {"fp16": "float16", "bf16": "bfloat16"}[precision] in result.first_bad.evidence
    assert "look at weights and model" in result.rows_told


def test_spike_is_replayed_after_its_checkpoint_went_and_says_which_rows_and_layers_carry_it(
    splits: Path, tmp_path: Path
):
    rate = "def learning_rate(step, steps, training):\n    return 3.0 if 150 <= step < 156 else 0.01\n\n\n"
    result, incident = stages.train(splits, tmp_path, ("def predict(", f"{rate}def predict("))
    assert result.alarm is None
    assert f"toy/0123/full/{incident.name}" in [alarm.incident for alarm in result.alarms]
    replayed = stages.replay(incident)
    assert (replayed.reproduced, replayed.from_step, replayed.first_bad) == ("bit_for_bit", 0, None)
    assert replayed.agreed == replayed.on_the_way == read_incident(incident).step
    assert len(replayed.rows) == 5
    assert "of the batch's loss" in replayed.rows[0].told
    assert len(replayed.layers) == 3
    assert "times its median before" in replayed.layers[0]
    assert "median before 0.01" in replay_text(read_incident(incident), replayed)


def test_checkpoint_that_is_gone_costs_time_and_no_bit(log_of_zero: Path, tmp_path: Path):
    stage = log_of_zero.parents[1]
    kept = shutil.copytree(stage / "checkpoints", tmp_path / "checkpoints")
    try:
        shutil.rmtree(stage / "checkpoints")
        result = stages.replay(log_of_zero)
    finally:
        shutil.copytree(kept, stage / "checkpoints", dirs_exist_ok=True)
    assert (result.reproduced, result.from_step) == ("bit_for_bit", 0)
    assert "from the stage's beginning, since step-00000025" in result.from_told


def test_other_code_is_refused_and_replayed_where_asked_to_see_whether_it_is_mended(log_of_zero: Path):
    model = Path(read_incident(log_of_zero).job.use_case_folder) / "model.py"
    source = model.read_text()
    try:
        model.write_text(source.replace("torch.log(p)", "torch.log(p.clamp(1e-6, 1 - 1e-6))").replace(
            "torch.log(1 - p)", "torch.log((1 - p).clamp(1e-6))"
        ))  # fmt: skip
        with pytest.raises(IncidentError, match="code is not the one"):
            stages.replay(log_of_zero)
        result = stages.replay(log_of_zero, changed_code=True)
    finally:
        model.write_text(source)
    assert (result.reproduced, result.first_bad) == ("not", None)
    assert "other code of the use case" in result.elsewhere
    told = replay_text(read_incident(log_of_zero), result)
    assert "does not come again" in told
    assert "cause" not in told


def test_rows_that_were_changed_since_are_refused(log_of_zero: Path):
    path = Path(read_incident(log_of_zero).rows_file.path)
    content = path.read_bytes()
    try:
        path.write_bytes(content + b"x")
        with pytest.raises(IncidentError, match="training rows are gone or were changed"):
            stages.replay(log_of_zero)
    finally:
        path.write_bytes(content)


def test_skipped_batches_are_left_out_of_the_way_as_they_were(splits: Path, tmp_path: Path):
    both = lambda rows: stages.one_row("x1", float("inf"), 2345)(stages.one_row("x1", 1e7)(rows))
    result, _ = stages.train(
        splits, tmp_path, stages.SQRT, stages.PLAIN, rows=both, monitors={"non_finite": "skip_batch"}, epochs=1
    )
    _, last = sorted((alarm.incident for alarm in result.alarms), key=lambda name: int(Path(name).name.split("-")[0]))
    found = tmp_path / "var" / "training" / "toy" / "0123" / "full" / "incidents" / Path(last).name
    incident = read_incident(found)
    assert len(incident.done.skipped) == 1
    shutil.rmtree(found.parents[1] / "checkpoints")
    replayed = stages.replay(found)
    assert (replayed.reproduced, replayed.from_step) == ("bit_for_bit", 0)
    assert replayed.agreed == replayed.on_the_way > 10
    assert len(replayed.rows) == 1


def test_alarm_after_the_training_went_back_is_replayed_past_what_it_left_out(splits: Path, tmp_path: Path):
    both = lambda rows: stages.one_row("x1", float("inf"), 2345)(stages.one_row("x1", 1e7)(rows))
    result, _ = stages.train(
        splits, tmp_path, stages.SQRT, stages.PLAIN, rows=both,
        monitors={"non_finite": "roll_back", "most_times": 20}, epochs=1,
    )  # fmt: skip
    assert {alarm.action for alarm in result.alarms} == {"roll_back"}
    names = [Path(alarm.incident).name for alarm in result.alarms if alarm.incident]
    last = max(names, key=lambda name: int(name.split("-")[0]))
    found = tmp_path / "var" / "training" / "toy" / "0123" / "full" / "incidents" / last
    assert len(read_incident(found).done.passed_over) >= 1
    replayed = stages.replay(found)
    assert (replayed.reproduced, replayed.agreed) == ("bit_for_bit", replayed.on_the_way)


def test_stage_that_goes_on_from_the_one_before_is_replayed_from_there(splits: Path, tmp_path: Path):
    code = toy.changed_use_case(tmp_path / "code" / "toy", stages.LOG, stages.PLAIN)
    rows = stages.one_row("x1", 1e6)
    changed = toy.copy_splits(splits, tmp_path / "splits", training=rows)
    spec = toy.spec_with(stages={"mode": "continue", "smoke": 0.05, "pilot": 0.06})
    folder = tmp_path / "var" / "training" / "toy" / "0123"
    jobs = {
        name: toy.train_job(changed, folder / name, name, spec=spec, use_case=code) for name in ("smoke", "full")
    }  # fmt: skip
    for job in jobs.values():
        Path(job.out).mkdir(parents=True)
    smoke = run_stage(jobs["smoke"])
    assert smoke.alarm is None
    full = run_stage(jobs["full"].model_copy(update={"start": smoke.checkpoint}))
    assert full.alarm is not None
    replayed = stages.replay(folder / "full" / "incidents" / Path(full.alarm.incident or "").name)
    assert (replayed.reproduced, replayed.agreed) == ("bit_for_bit", replayed.on_the_way)
    assert [row.row for row in replayed.rows] == [1234]


def test_update_that_spoiled_the_weights_is_looked_at_in_place_of_the_one_that_showed_it(splits: Path, tmp_path: Path):
    rate = "def learning_rate(step, steps, training):\n    return float('inf') if step == 30 else 0.01\n\n\n"
    result, incident = stages.train(splits, tmp_path, ("def predict(", f"{rate}def predict("))
    assert result.alarm is not None
    assert result.alarm.monitor == "non_finite_parameter"
    replayed = stages.replay(incident)
    assert (replayed.step, replayed.reproduced) == (30, "bit_for_bit")
    assert replayed.first_bad is not None
    assert replayed.first_bad.phase == "optimizer"
    assert "step 30 spoiled the weights" in replayed.notes[0]


def test_worker_replays_with_other_instructions_and_says_the_tolerance(log_of_zero: Path, tmp_path: Path):
    job = ReplayJob(use_case_folder="", out=str(tmp_path), device="auto", incident=str(log_of_zero))
    (tmp_path / "job.json").write_text(json.dumps({"job": job.model_dump(mode="json")}))
    done = subprocess.run(
        [sys.executable, "-m", "trainworthy.lifecycle.worker", "--job", str(tmp_path / "job.json")],
        env=os.environ | {"ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": str(toy.ROOT / "src")},
        cwd=toy.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = ResultFile.model_validate_json((tmp_path / "result.json").read_bytes()).result
    assert result.kind == "replay"
    assert any("instructions DEFAULT" in other for other in result.elsewhere)
    assert result.reproduced in ("bit_for_bit", "within_tolerance")
    assert result.first_bad is not None
    assert result.first_bad.operation == "log"
    if result.reproduced == "within_tolerance":
        assert "relative" in result.tolerance
