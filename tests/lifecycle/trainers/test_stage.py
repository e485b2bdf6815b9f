"""A stage that is trained by a script of the use case's own, by each of the three ways of the documentation."""

from dataclasses import dataclass

import own_trainers
import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.answer import files_are_whole, read_result
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.errors import CheckpointError, TrainingError
from trainworthy.lifecycle.gates.stage import stage_checks
from trainworthy.lifecycle.protocol.results import TrainResult

HAND = own_trainers.documented("hand")
STEP = "        session.step(loss=loss, rows=rows, model=model, optimizer=optimizer)\n"


def by_hand(splits, tmp_path, *replacements: tuple[str, str], stage: str = "pilot", **fields) -> TrainResult:
    folder = own_trainers.use_case(tmp_path / "toy", HAND, *replacements)
    return run_stage(own_trainers.job(splits, folder, tmp_path / "out", stage, **fields))


def checks(result: TrainResult, stage: str = "smoke") -> dict:
    return {check.name: check for check in stage_checks(stage, result, 0.0, 0.0, 1.0)}


@pytest.mark.parametrize("way", own_trainers.NEEDS)
def test_stage_by_each_documented_script_is_trained_validated_and_exported(splits, tmp_path, way):
    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way))
    job = own_trainers.job(splits, folder, tmp_path / "out", "full")
    result = run_stage(job)
    assert (result.steps, result.alarm, result.ended) == (result.planned_steps, None, "")
    assert result.metrics["val_loss"] < 0.9 * result.metrics["val_loss_of_prior"]
    assert result.artifact is not None
    assert files_are_whole(result)
    # Nobody knows whether its losses are of rows that no update has seen.
    assert {point.figure for point in result.curve} == {"training_loss"}
    assert result.curve[-1].loss < result.curve[0].loss
    assert result.seconds.compute > 0
    rerun = run_stage(job.model_copy(update={"out": str(tmp_path / "rerun"), "stop_after_steps": result.prefix_steps}))
    assert rerun.steps == result.prefix_steps
    assert rerun.prefix_sha256 == result.prefix_sha256 is not None
    found = checks(result)
    assert found["trainer"].status == "insufficient"
    assert not found["trainer"].stops
    assert {"progressive validation", "order of rows"} <= {
        words for words in ("progressive validation", "order of rows") if words in found["trainer"].evidence
    }
    assert {name for name, check in found.items() if check.status != "pass"} == {"trainer"}


def test_worker_answers_a_job_with_a_script(splits, tmp_path):
    folder = own_trainers.use_case(tmp_path / "toy", HAND)
    job = own_trainers.job(splits, folder, tmp_path / "out")
    assert toy_jobs.run_worker(job) == (0, {})
    result = read_result(tmp_path / "out", job)
    assert isinstance(result, TrainResult)
    assert result.trainer is not None
    assert result.trainer.file == "train.py"


def test_loss_that_is_not_finite_ends_the_training_and_names_its_rows(splits, tmp_path):
    bad = ("        optimizer.zero_grad()\n", "        optimizer.zero_grad()\n        loss = loss / (step != 5)\n")
    result = by_hand(splits, tmp_path, bad)
    assert result.alarm is not None
    assert (result.alarm.step, result.alarm.monitor, result.steps) == (5, "non_finite_loss", 5)
    assert len(result.alarm.row_keys) == 20
    assert set(result.alarm.row_keys[0]) == {"row_id"}
    assert result.checkpoint is None
    assert result.alarms == (result.alarm,)
    assert checks(result)["finite"].stops


def test_row_with_an_input_that_is_not_finite_is_named_and_blamed(splits, tmp_path):
    batch = "        rows = batch(session, step)\n"
    spoils = f"{batch}        if step == 5:\n            session.inputs['numbers'][rows[3]] = torch.nan\n"
    result = by_hand(splits, tmp_path, (batch, spoils))
    assert result.alarm is not None
    assert (result.alarm.step, len(result.alarm.row_keys)) == (5, 1)
    assert result.alarm.rule == "rows_not_finite"


# Of value 0, with a derivative that is not finite: the gradient alone shows it.
ROOT = """

def bad(network):
    return sum((0 * parameter.sum()).abs().sqrt() for parameter in network.parameters())


def kept(build, train):
    made = []

    def build_and_keep(*arguments):
        made.append(build(*arguments))
        return made[-1]

    def train_and_save(session):
        import torch

        try:
            return train(session)
        finally:
            torch.save(made[-1].state_dict(), session.folder / "weights.pt")

    return build_and_keep, train_and_save


build_model, train = kept(build_model, train)
"""
WITH_ROOT = {
    "hand": ("rows]).mean()\n", "rows]).mean() + bad(model)\n"),
    "epochs": ("loss_of(session, model, batch)\n", "loss_of(session, model, batch) + bad(model)\n"),
    "Lightning": ("targets).mean()\n", "targets).mean() + bad(self.network)\n"),
    "transformers": ("labels).mean()}\n", "labels).mean() + bad(self.network)}\n"),
}


@pytest.mark.parametrize("way", own_trainers.NEEDS)
def test_gradient_that_is_not_finite_never_reaches_the_weights(splits, tmp_path, way):
    import torch

    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way) + ROOT, WITH_ROOT[way])
    result = run_stage(own_trainers.job(splits, folder, tmp_path / "out", "pilot"))
    assert result.alarm is not None
    assert (result.alarm.step, result.alarm.monitor) == (0, "non_finite_gradient")
    weights = torch.load(tmp_path / "out" / "script" / "weights.pt", weights_only=True)
    assert all(bool(weight.isfinite().all()) for weight in weights.values())


def test_script_that_tells_no_model_is_insufficient_in_what_cannot_be_seen(splits, tmp_path):
    result = by_hand(splits, tmp_path, (STEP, "        session.step(loss=loss)\n"))
    assert result.prefix_sha256 is None
    found = checks(result)
    assert [found[name].status for name in ("finite", "monitors", "trainer")] == ["insufficient"] * 3
    assert "model" in found["finite"].fix
    assert "no gradient was seen" in found["trainer"].evidence


def test_script_that_ends_early_by_itself_is_validated(splits, tmp_path):
    result = by_hand(splits, tmp_path, ("        if session.should_stop:\n", "        if session.done == 30:\n"))
    assert (result.steps, result.ended) == (30, "early")
    assert result.metrics["val_loss"] < result.metrics["val_loss_of_prior"]
    assert checks(result)["steps"].status == "pass"


def test_script_may_return_weights_for_build_model(splits, tmp_path):
    result = by_hand(splits, tmp_path, ("    return model\n", "    return model.state_dict()\n"))
    assert result.parameters_sha256 == by_hand(splits, tmp_path / "module").parameters_sha256


@dataclass(frozen=True)
class Fault:
    old: str
    new: str
    problem: str


FAULTS = {
    "nothing": Fault("    return model\n", "    return None\n", "train returned NoneType"),
    "other_weights": Fault("    return model\n", "    return {}\n", "weights of another model"),
    "a_part": Fault("    return model\n", "    return model.layers\n", "gives no probabilities"),
    "no_update": Fault(STEP, "", "told no update"),
    "several_losses": Fault("session.step(loss=loss, ", "session.step(loss=loss.repeat(3), ", "given several losses"),
    "no_loss": Fault("session.step(loss=loss, ", "session.step(loss='0.3', ", "was given no loss"),
    "no_rows": Fault("rows=rows, model", "rows='all', model", "was given no rows"),
    "no_model": Fault("model=model, optimizer=optimizer)\n        opt", "model=loss_fn)\n        opt", "no model"),
    "no_optimizer": Fault(STEP, STEP.replace("=optimizer", "=model.parameters()"), "was given no optimizer"),
    "no_part": Fault(
        "session.checkpoint(model=model, ", "session.checkpoint(epoch=step, ", "part epoch of a .* has no"
    ),
    "exit": Fault(STEP, f"{STEP}        raise SystemExit\n", "ended its process"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_script_that_breaks_the_contract_is_told_what_to_mend(splits, tmp_path, fault):
    with pytest.raises((TrainingError, CheckpointError), match=FAULTS[fault].problem) as caught:
        by_hand(splits, tmp_path, (FAULTS[fault].old, FAULTS[fault].new))
    assert caught.value.fix


@pytest.mark.parametrize("rows", ["rows.tolist()", "rows.numpy().size", "None"])
def test_rows_may_be_told_as_a_list_a_number_or_not_at_all(splits, tmp_path, rows):
    result = by_hand(splits, tmp_path, ("rows=rows, model", f"rows={rows}, model"))
    assert result.curve[0].rows % toy_jobs.SPEC.training.batch_size == 0
    assert result.alarms == ()


def test_weights_of_rows_that_the_script_never_reads_are_told(splits, tmp_path):
    spec = toy_jobs.spec_with(training={"class_weights": {"positive": 3.0}})
    unread = by_hand(splits, tmp_path, spec=spec)
    assert "never read session.weights" in checks(unread)["trainer"].evidence
    # Unused weights have moved no prediction, so nothing is taken out of them.
    plain = by_hand(splits, tmp_path / "plain")
    assert unread.metrics["val_loss"] == plain.metrics["val_loss"]
    weighed = ("session.targets[rows]).mean()", "session.targets[rows]).mul(session.weights[rows]).mean()")
    read = by_hand(splits, tmp_path / "read", weighed, spec=spec)
    assert "never read session.weights" not in checks(read)["trainer"].evidence
    assert abs(read.metrics["val_loss"] - plain.metrics["val_loss"]) < 0.05


def test_script_is_given_the_stage_rows_alone(splits, tmp_path):
    reads = (
        "    first = session",
        "    import pandas\n    rows = pandas.read_parquet(session.parquet())\n"
        "    assert list(rows) == ['shop', 'x1', 'x2', 'positive']\n"
        "    assert len(rows) == len(session.targets)\n    first = session",
    )  # fmt: skip
    result = by_hand(splits, tmp_path, reads)
    rows = len(pd.read_parquet(splits / "training.parquet"))
    assert 0.29 * rows < result.rows < 0.31 * rows


def test_update_told_of_no_rows_counts_as_a_whole_batch(splits, tmp_path):
    result = by_hand(splits, tmp_path, ("rows=rows, model", "rows=0, model"))
    assert result.steps == result.planned_steps
    assert {point.rows % toy_jobs.SPEC.training.batch_size for point in result.curve} == {0}
