"""Scripts that train several models by turns: each has its monitors, and healthy ones raise no critical alarm."""

from pathlib import Path

import own_trainers
import pytest
import toy_jobs

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.gates.stage import monitors_check, stage_checks
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.protocol.training_figures import Alarm

# Two networks that are told by turns; the second one learns to find rows that the first one gets wrong, and the first
# one is pulled to hide them: adversarial, as a GAN is.
ADVERSARY = """
import torch

from .model import build_model, loss_fn


def train(session):
    torch.manual_seed(session.seed)
    model = build_model(session.preprocessing, session.hyperparameters)
    other = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    ours = torch.optim.AdamW(model.parameters(), lr=0.01)
    theirs = torch.optim.AdamW(other.parameters(), lr=0.01)
    parts = {"model": model, "other": other, "ours": ours, "theirs": theirs}
    first = session.resume(**parts)
    for step in range(first, session.steps):
        generator = torch.Generator().manual_seed(step)
        rows = torch.randint(len(session.targets), (session.batch_size,), generator=generator)
        logits = model({name: tensor[rows] for name, tensor in session.inputs.items()})
        guessed = other(logits.reshape(-1, 1)).reshape(-1)
        fooled = torch.nn.functional.binary_cross_entropy_with_logits(guessed, session.targets[rows])
        mine = step % 2 == 0
        loss = loss_fn(logits, session.targets[rows]).mean() - 0.1 * fooled if mine else fooled
        ours.zero_grad()
        theirs.zero_grad()
        loss.backward()
        told, optimizer = (model, ours) if mine else (other, theirs)
        session.step(loss=loss, rows=rows, model=told, optimizer=optimizer)
        optimizer.step()
        session.checkpoint(**parts)
        if session.should_stop:
            break
    return model
"""
DEAD = Alarm(
    step=70, onset=60, last_step=70, monitor="dead_layer", severity="critical", symptom="a layer gives nothing",
    evidence="step 70", cause="a large step", fix="lower the rate", action="warn",
)  # fmt: skip
UPDATE = "        optimizer.step()\n"
KILL = (
    "        if step == {at}:\n            torch.nn.init.zeros_(other[0].weight)\n"
    "            torch.nn.init.constant_(other[0].bias, -100.0)\n"
)


def train(splits: Path, tmp_path: Path, *replacements: tuple[str, str], asked=lambda: False) -> TrainResult:
    folder = tmp_path / "toy"
    if not folder.exists():
        own_trainers.use_case(folder, ADVERSARY, *replacements)
    spec = toy_jobs.spec_with(training={"epochs": 6, "checkpoint_every_steps": 25})
    return run_stage(own_trainers.job(splits, folder, tmp_path / "out", "full", spec=spec), asked)


def test_healthy_models_by_turns_raise_no_critical_alarm_and_are_both_looked_at(splits, tmp_path):
    result = train(splits, tmp_path)
    assert [alarm.evidence for alarm in result.alarms if alarm.severity == "critical"] == []
    assert (result.steps, result.alarm) == (result.planned_steps, None)
    assert result.trainer is not None
    assert result.trainer.closer
    assert not result.trainer.unwatched


@pytest.mark.parametrize("which", ["model", "other"])
def test_layer_that_dies_in_one_of_two_models_is_found(splits, tmp_path, which):
    layer = "other[0]" if which == "other" else "model.layers[0]"
    killed = KILL.format(at=50).replace("other[0]", layer)
    result = train(splits, tmp_path, (UPDATE, UPDATE + killed))
    found = [alarm for alarm in result.alarms if alarm.monitor == "dead_layer"]
    # Two looks of its own updates, of which it makes every second one.
    assert found
    assert 50 < found[0].step <= 50 + 2 * 41
    assert found[0].incident is not None


def test_optimizer_of_one_model_that_is_never_called_is_found(splits, tmp_path):
    result = train(splits, tmp_path, (UPDATE, "        mine and optimizer.step()\n"))
    found = [alarm for alarm in result.alarms if alarm.monitor == "unchanged_layer" and alarm.severity == "critical"]
    assert found
    assert set(found[0].where) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_loss_that_jumps_is_a_warning_where_models_are_told_by_turns(splits, tmp_path):
    told = "        session.step(loss=loss, rows=rows, model=told, optimizer=optimizer)\n"
    jumps = told.replace("loss=loss", "loss=loss * (50.0 if step >= 80 and not mine else 1.0)")
    by_turns = train(splits, tmp_path / "turns", (told, jumps))
    # One model first, and then another.
    alone = train(splits, tmp_path / "alone", ("mine = step % 2 == 0", "mine = step < 20"), (told, jumps))
    found = [
        {(one.severity, one.rule) for one in result.alarms if one.monitor == "loss_spike"}
        for result in (by_turns, alone)
    ]  # fmt: skip
    assert found == [{("warning", "a_game")}, {("critical", "learning_rate_too_high")}]


def test_script_that_ends_where_the_next_update_would_be_looked_at_leaves_no_hook(splits, tmp_path):
    """Which torch.export would follow."""
    result = train(splits, tmp_path, ("range(first, session.steps)", "range(first, 40)"))
    assert (result.steps, result.ended) == (40, "early")
    assert result.artifact is not None


def test_jump_after_an_interruption_is_judged_as_without_one(splits, tmp_path):
    told = "        session.step(loss=loss, rows=rows, model=told, optimizer=optimizer)\n"
    # By turns at first, and one of them alone at the end.
    changes = (
        ("mine = step % 2 == 0", "mine = step % 2 == 0 and step < 20"),
        (told, told.replace("loss=loss", "loss=loss * (50.0 if step >= 100 else 1.0)")),
    )
    whole, calls = train(splits, tmp_path / "whole", *changes), list[int]()
    with pytest.raises(PreemptedError):
        train(splits, tmp_path / "cut", *changes, asked=lambda: calls.append(0) or len(calls) > 2 * 66)
    resumed = train(splits, tmp_path / "cut")
    spikes = [
        [(one.step, one.severity, one.cause) for one in result.alarms if one.monitor == "loss_spike"]
        for result in (whole, resumed)
    ]
    assert spikes[0] == spikes[1]
    assert [severity for _, severity, _ in spikes[0]] == ["warning"]


def test_models_by_turns_go_on_after_an_interruption_as_without_one(splits, tmp_path):
    killed = (UPDATE, UPDATE + KILL.format(at=50))
    whole = train(splits, tmp_path / "whole", killed)
    calls: list[int] = []
    # Between the two looks at what died, and the other model is told first then. Twice an update it is asked.
    with pytest.raises(PreemptedError):
        train(splits, tmp_path / "cut", killed, asked=lambda: calls.append(0) or len(calls) > 2 * 66)
    resumed = train(splits, tmp_path / "cut")
    assert resumed.resumed_from_step == 67
    assert resumed.parameters_sha256 == whole.parameters_sha256
    told = [(one.monitor, one.step, one.onset, one.where, one.severity, one.cause) for one in whole.alarms]
    assert [(one.monitor, one.step, one.onset, one.where, one.severity, one.cause) for one in resumed.alarms] == told


def checks(result: TrainResult) -> dict[str, str]:
    return {check.name: check.status for check in stage_checks("smoke", result, 0.0, 0.0, 1.0)}


def test_script_that_wraps_its_model_anew_at_each_update_is_watched(splits, tmp_path):
    result = train(splits, tmp_path, ("model=told, optimizer", "model=torch.nn.ModuleList([told]), optimizer"))
    assert result.trainer is not None
    assert not result.trainer.unwatched
    assert checks(result)["monitors"] == "pass"


def test_script_that_tells_a_copy_at_each_update_is_told_that_it_is_not_watched(splits, tmp_path):
    copied = (
        "        session.step(loss=loss, rows=rows, model=told",
        "        twin = __import__('copy').deepcopy(told)\n"
        "        for one, its in zip(twin.parameters(), told.parameters()):\n            one.grad = its.grad\n"
        "        session.step(loss=loss, rows=rows, model=twin",
    )
    result = train(splits, tmp_path, copied)
    assert result.trainer is not None
    assert result.trainer.unwatched
    assert result.alarms == ()
    assert checks(result)["monitors"] == "insufficient"
    # A warning of what was seen makes that no milder, and what is critical is told as such.
    for severity, status in (("warning", "insufficient"), ("critical", "fail")):
        check = monitors_check(result.model_copy(update={"alarms": (DEAD.model_copy(update={"severity": severity}),)}))
        assert (check.status, check.severity) == (status, "error")
        assert "a layer gives nothing" in check.evidence
