"""Weights that a script's own update made not finite: an alarm with its incident, and they are kept nowhere."""

from pathlib import Path

import own_trainers
import pytest
import toy_jobs

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.gates.stage import stage_checks
from trainworthy.lifecycle.incidents.find import known_incidents
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, windows_in

HAND = own_trainers.documented("hand")
MADE = "    optimizer = torch.optim.AdamW(model.parameters(), lr=session.training.optimizer.learning_rate)\n"
ZERO = "        optimizer.zero_grad()\n"
STEP = "        session.step(loss=loss, rows=rows, model=model, optimizer=optimizer)\n"
UPDATE = "        optimizer.step()\n"
SAVE = "        session.checkpoint(model=model, optimizer=optimizer)\n"
RETURN = "    return model\n"
AT = 43


def spoils(step: str) -> str:
    return f"        if step == {step}:\n            torch.nn.init.constant_(model.layers[3].bias, torch.nan)\n"


# An alarm that comes before: of parameters that no optimizer was told to have.
LEFT_OUT = (
    (MADE, MADE.replace("model.", "model.layers.")), (ZERO, "        model.zero_grad()\n"),
)  # fmt: skip
# Where a script spoils its weights, and the update at which that is seen, None for the last one.
WAYS = {
    "before_a_checkpoint": (((UPDATE, UPDATE + spoils(str(AT))),), AT),
    "in_a_part_of_another_name": (
        (
            (UPDATE, UPDATE + spoils(str(AT))), (SAVE, SAVE.replace("model=model", "network=model")),
            ("resume(model=model", "resume(network=model"),
        ),
        AT,
    ),
    "in_a_model_that_is_no_part": (
        (
            (UPDATE, UPDATE + spoils(str(AT))), (SAVE, "        session.checkpoint(optimizer=optimizer)\n"),
            ("resume(model=model, ", "resume("),
        ),
        AT,
    ),
    "without_checkpoints": (((UPDATE, UPDATE + spoils(str(AT))), (SAVE, "")), AT + 1),
    "by_the_last_update": (((UPDATE, UPDATE + spoils("session.steps - 1")), (SAVE, "")), None),
    "after_the_loop": (((RETURN, f"    torch.nn.init.constant_(model.layers[3].bias, torch.inf)\n{RETURN}"),), None),
    "in_the_state_dict_that_is_returned": (
        ((RETURN, "    return {**model.state_dict(), 'layers.3.bias': torch.full((1,), torch.nan)}\n"),), None,
    ),
    "by_a_gradient_that_was_not_shown": (
        ((STEP, "        session.step(loss=loss, rows=rows)\n"), (UPDATE, UPDATE + spoils("session.steps - 1"))), None,
    ),
}  # fmt: skip


def trained(splits: Path, folder: Path, *replacements: tuple[str, str], every: int = 1) -> TrainResult:
    spec = toy_jobs.spec_with(training={"checkpoint_every_steps": every})
    code = own_trainers.use_case(folder / "toy", HAND, *replacements)
    out = folder / "var" / "training" / "toy" / "0123" / "full"
    return run_stage(own_trainers.job(splits, code, out, "full", spec=spec))


@pytest.mark.parametrize("way", WAYS)
def test_spoiled_weights_end_the_training_with_an_alarm_and_are_kept_nowhere(splits, tmp_path, way):
    import torch

    replacements, seen_at = WAYS[way]
    result = trained(splits, tmp_path, *replacements)
    alarm = result.alarm
    assert alarm is not None
    assert alarm.monitor == "non_finite_parameter"
    assert (alarm.severity, alarm.action, alarm.where) == ("critical", "stop", ("layers.3.bias",))
    assert alarm.cause
    assert alarm.fix
    assert alarm.step == (result.planned_steps - 1 if seen_at is None else seen_at)
    assert alarm.evidence.endswith("the training ended there, without a model")
    assert alarm.incident in known_incidents(tmp_path / "var")
    assert alarm in result.alarms
    assert (result.checkpoint, result.artifact, result.metrics.get("val_loss")) == (None, None, None)
    assert {check.name: check.status for check in stage_checks("smoke", result, 0.0, 0.0, 1.0)}["finite"] == "fail"
    kept = list(Path(tmp_path / "var").rglob("state.pt"))
    assert bool(kept) == ("session.checkpoint(" in (tmp_path / "toy" / "train.py").read_text())
    for path in kept:
        parts = torch.load(path, weights_only=True)["parts"]
        weights = [one for name in ("model", "network") for one in parts.get(name, {}).values()]
        assert all(bool(weight.isfinite().all()) for weight in weights)


def test_alarms_before_it_are_kept_and_were_written_while_it_trained(splits, tmp_path):
    result = trained(splits, tmp_path, *LEFT_OUT, (UPDATE, UPDATE + spoils(str(AT))))
    assert [alarm.monitor for alarm in result.alarms] == ["not_in_optimizer", "non_finite_parameter"]
    assert result.alarms[0].step == 20
    out = tmp_path / "var" / "training" / "toy" / "0123" / "full"
    written = [line.alarm for line in windows_in(out / FILE_NAME) if line.alarm is not None]
    assert written == list(result.alarms)


def test_alarm_is_written_before_the_script_ends(splits, tmp_path):
    reads = (
        "        if step == 40:\n            import time\n            path = session.folder.parent / 'metrics.jsonl'\n"
        "            end = time.monotonic() + 20\n"
        "            while 'not_in_optimizer' not in path.read_text():\n"
        "                assert time.monotonic() < end\n                time.sleep(0.01)\n"
    )
    result = trained(splits, tmp_path, *LEFT_OUT, (UPDATE, reads + UPDATE))
    assert result.steps == result.planned_steps


@pytest.mark.parametrize("way", ["Lightning", "transformers"])
def test_framework_s_checkpoint_of_spoiled_weights_is_an_alarm(splits, tmp_path, way):
    own_trainers.needs(way)
    hooks = {
        "Lightning": (
            "    def configure_optimizers(self):\n",
            "    def optimizer_step(self, *given, **named):\n        super().optimizer_step(*given, **named)\n"
            "        if self.global_step == 11:\n            torch.nn.init.constant_(self.network.layers[3].bias, "
            "torch.nan)\n\n    def configure_optimizers(self):\n",
        ),
        "transformers": (
            "        callbacks=[callback],\n    )\n",
            "        callbacks=[callback],\n    )\n    from transformers import TrainerCallback\n\n"
            "    class Spoils(TrainerCallback):\n        def on_optimizer_step(self, args, state, control, **kwargs):\n"
            "            if state.global_step == 11:\n"
            "                nn.init.constant_(network.layers[3].bias, float('nan'))\n\n"
            "    trainer.add_callback(Spoils())\n",
        ),
    }
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way), hooks[way])
    spec = toy_jobs.spec_with(training={"checkpoint_every_steps": 1})
    result = run_stage(own_trainers.job(splits, folder, tmp_path / "out", "pilot", spec=spec))
    assert result.alarm is not None
    assert result.alarm.monitor == "non_finite_parameter"
    assert result.steps == 12
    assert max((tmp_path / "out" / "checkpoints").iterdir()).name == "step-00000011"
