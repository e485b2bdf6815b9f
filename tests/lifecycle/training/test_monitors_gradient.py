"""At a critical alarm the gradient of the weights as they are is held against the slope of the loss."""

import json
from dataclasses import replace

import pytest
import torch
import toy_jobs
from torch import nn

from benchmarks.healthy_gradients import HEALTHY_GRADIENTS
from benchmarks.monitored import monitored
from benchmarks.networks import HOSTS, mlp
from benchmarks.planted_gradients import PLANTED_GRADIENTS
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training import course
from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.causes import Context, diagnosed
from trainworthy.lifecycle.engine.training.monitors.game import LossLook, look_at_loss
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.monitors.true_gradient import NOTHING, GradientLook, look_at_gradient
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.signals import Signals
from trainworthy.lifecycle.spec.training import MonitorsSpec


def looked(setup) -> GradientLook:
    subject = setup.subject()
    return look_at_gradient(subject.model(), subject.training, subject.recipe)


def test_what_is_found_is_wrong_a_deviation_or_nothing():
    assert looked(PLANTED_GRADIENTS["every_sign"][0](0)).wrong
    factor = looked(PLANTED_GRADIENTS["wrong_factor"][0](0))
    assert not factor.wrong
    assert "0.50" in factor.description
    assert looked(HEALTHY_GRADIENTS["batch_norm"](0)) == NOTHING
    assert not looked(HEALTHY_GRADIENTS["twins"](0)).wrong


def test_model_is_left_alone_and_one_that_bears_no_copy_tells_nothing():
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.last = nn.Sequential(nn.Linear(12, 1), nn.BatchNorm1d(1)), None

        def forward(self, inputs):
            self.last = self.layers(inputs["numbers"]).squeeze(1)
            return self.last

    subject = replace(mlp(0), network=Kept).subject()
    model, drawn = subject.model(), torch.get_rng_state()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    assert look_at_gradient(model, subject.training, subject.recipe) == NOTHING
    model(subject.training.take(torch.arange(4)).inputs)
    before |= {name: one.clone() for name, one in model.state_dict().items() if "running" in name or "num" in name}
    assert look_at_gradient(model, subject.training, subject.recipe) == NOTHING
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())


class Finds(Base):
    """A finding at each update, by turns milder."""

    def __init__(self, monitor: str, severities: tuple[str, ...]) -> None:
        super().__init__()
        self.name, self.severities = monitor, severities

    def after_backward(self, signals: Signals) -> Finding | None:
        severity = self.severities[signals.step // 60]
        if signals.step % 60:
            return None
        return Finding(self.name, severity, signals.step, signals.step, "symptom", "evidence", ())  # pyright: ignore


def watched(monitor: str, severities: tuple[str, ...], look: GradientLook):
    model, asked = nn.Linear(2, 1), []
    watch = Watch(
        model, MonitorsSpec(), [Finds(monitor, severities)], 1000, gradient=lambda: asked.append(1) or look
    )  # fmt: skip
    state = TrainState(model, ())
    for state.step in range(60 * len(severities)):
        watch.judge(state, Signals(state.step, 1.0, 1.0, 32, 0.1, 1.0, [1.0, 1.0], 0.01, 0.0))
    return watch, len(asked)


def test_it_is_asked_once_and_joins_evidence_and_cause():
    watch, asked = watched("plateau", ("warning", "critical", "critical"), GradientLook("is -1.00 of it", True))
    mild, *hard = watch.alarms
    assert asked == 1
    assert "-1.00" not in mild.evidence
    assert {one.rule for one in hard} == {"gradient_is_no_slope"}
    assert all("-1.00" in one.evidence for one in hard)
    again = Watch(nn.Linear(2, 1), MonitorsSpec(), [], 1000)
    again.load_state_dict(watch.state_dict())
    assert again.state_dict()["json"].count("-1.00 of it") == watch.state_dict()["json"].count("-1.00 of it") > 0


@pytest.mark.parametrize(("monitor", "severity"), [("data_wait", "critical"), ("plateau", "warning")])
def test_it_is_not_asked_of_what_it_cannot_explain_or_of_warnings(monitor, severity):
    assert watched(monitor, (severity,), GradientLook("x", True))[1] == 0


def test_deviation_that_may_be_meant_is_evidence_and_no_cause():
    watch, _ = watched("loss_spike", ("critical",), GradientLook("0.50 of it", False))
    assert "0.50 of it" in watch.alarms[0].evidence
    assert watch.alarms[0].rule != "gradient_is_no_slope"


def test_loss_deviates_along_all_gradients_where_they_are_turned_and_not_where_they_are_sound():
    looks = [
        look_at_loss(one.model(), one.training, one.recipe)
        for one in (PLANTED_GRADIENTS["every_sign"][0](0).subject(), HEALTHY_GRADIENTS["batch_norm"](0).subject())
    ]
    assert looks == [LossLook(deviates=True), LossLook()]


def test_stage_notes_at_its_start_a_gradient_that_no_healthy_training_has(splits, tmp_path, monkeypatch):
    looks = [GradientLook("is -1.00 of it", True), GradientLook("0.50 of it", False)]
    monkeypatch.setattr(course, "look_at_gradient", lambda *_: looks.pop(0))
    monkeypatch.setattr(course, "look_at_loss", lambda *_: LossLook(deviates=True))
    noted = [run_stage(toy_jobs.train_job(splits, tmp_path / str(n), "smoke")).notes for n in range(2)]
    assert [any("before the first update: is -1.00" in note for note in notes) for notes in noted] == [True, False]


def test_rule_names_the_cause():
    found = Finding("rise_above_best", "critical", 90, 90, "symptom", "evidence")
    assert diagnosed(found, context=Context(gradient_wrong=True)).rule == "gradient_is_no_slope"
    assert diagnosed(found, context=Context()).rule != "gradient_is_no_slope"


def first_alarms(host: str, times: float, **optimizer) -> set[str]:
    """The causes of a training's first alarms, at so many times its rate."""
    setup = HOSTS[host](0)
    optimizers = lambda model: [torch.optim.AdamW(model.parameters(), lr=1.0, **optimizer)]
    setup = replace(setup, build_optimizers=optimizers, learning_rate=times * setup.learning_rate)
    found = monitored(setup.subject(), until=("loss_spike", "update_ratio", "dead_layer")).alarms
    assert found
    assert all("learning rate" not in alarm.cause + alarm.fix for alarm in found) == bool(optimizer)
    return {alarm.rule for alarm in found}


@pytest.mark.parametrize("host", ["mlp", "cnn"])
def test_loss_that_rises_under_an_optimizer_that_ascends_is_no_matter_of_the_rate(host):
    assert first_alarms(host, 1, maximize=True) == {"gradient_is_no_slope"}


def test_rate_far_too_high_for_an_optimizer_that_descends_is_not_told_as_its_sign():
    assert "gradient_is_no_slope" not in first_alarms("mlp", 1000)


def test_directions_of_updates_go_through_a_checkpoint():
    first, second = (Watch(nn.Linear(2, 1), MonitorsSpec(), [], 1000) for _ in range(2))
    first.load_state_dict({"json": json.dumps(json.loads(first.state_dict()["json"]) | {"slopes": [3, 0]})})
    second.load_state_dict(first.state_dict())
    assert json.loads(second.state_dict()["json"])["slopes"] == [3, 0]
