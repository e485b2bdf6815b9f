"""The battery: what is tried after what, what is counted, and what a check leaves behind."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.preflight.battery import counted_updates, run_checks, same_random_numbers
from trainworthy.lifecycle.engine.preflight.inputs.alike import same_preprocessing
from trainworthy.lifecycle.engine.preflight.wiring.reach import uses_inputs
from trainworthy.lifecycle.gates.check import Check, Outcome
from trainworthy.lifecycle.protocol.checks import stops_the_step
from trainworthy.lifecycle.protocol.trial import Trial


def check(name: str, found: Outcome, after: str = "") -> Check[None]:
    return Check(f"overfit.{name}", "?", "", "", "", after=after and f"overfit.{after}", look=lambda seen: found)


def stops(trial: Trial) -> bool:
    return stops_the_step(trial.status, trial.severity, trial.required)


@pytest.mark.parametrize(
    ("found", "stopped"),
    [
        (Outcome("insufficient", "one output is as good as any"), False),
        (Outcome("fail", "unwise", severity="warning"), False),
        (Outcome("insufficient", "not measured", required=True), True),
        (Outcome("fail", "broken"), True),
    ],
)
def test_check_after_one_that_did_not_pass_stops_only_where_that_one_does(found, stopped):
    checks = [check("first", found), check("second", Outcome("pass", ""), "first"),
              check("third", Outcome("pass", ""), "second")]  # fmt: skip
    trials = run_checks(checks, None, device="host", not_applicable={})
    assert [stops(trial) for trial in trials] == [stopped] * 3
    assert [trial.status for trial in trials[1:]] == ["insufficient"] * 2
    # Alone it is tried: nothing is known of the one before.
    assert [trial.status for trial in run_checks(checks[1:2], None, device="host", not_applicable={})] == ["pass"]
    (again,) = run_checks(checks[1:2], None, device="host", not_applicable={}, earlier=trials[:1])
    assert again.required == stopped


@pytest.mark.parametrize(
    ("found", "answered_by"),
    [
        (Outcome("insufficient", "too much work", answered_by="references"), "references"),
        (Outcome("insufficient", "one output is as good as any"), ""),
        (Outcome("fail", "broken", answered_by="references"), ""),
    ],
)
def test_check_that_was_left_out_for_another_is_answered_by_what_answers_that_one(found, answered_by):
    checks = [check("first", found), check("second", Outcome("pass", ""), "first")]
    assert run_checks(checks, None, device="host", not_applicable={})[1].answered_by == answered_by


NO_ROWS = SimpleNamespace(training=None)


def crashed(look, seen: Any = NO_ROWS) -> Trial:
    one = Check("inputs.alike", "?", "the validation loss is high", "codes made for each split", "fit once", look=look)
    (trial,) = run_checks([one], seen, device="cpu", not_applicable={})
    assert trial.status == "error"
    return trial


def test_check_that_crashes_in_its_own_code_blames_trainworthy_and_not_the_network():
    trial = crashed(same_preprocessing)
    assert "AttributeError" in trial.evidence
    assert "Trainworthy" in trial.cause
    assert "not_applicable: {inputs.alike" in trial.fix
    assert trial.symptom == "the check crashed before it could look"


def test_error_that_came_up_through_the_use_cases_code_or_network_keeps_the_checks_own_words():
    # A layer of torch that is given a dict raises without a line of the use case's own.
    network = replace(mlp(0, rows=100).subject(), build=lambda: nn.Linear(12, 1))
    for trial in (crashed(lambda seen: seen.training.inputs), crashed(uses_inputs, network)):
        assert (trial.symptom, trial.fix) == ("the validation loss is high", "fit once"), trial.evidence


class Decayed(torch.optim.SGD):
    """An optimizer whose step is its parent's and more."""

    @torch.no_grad()
    def step(self, closure=None):
        self.param_groups[0]["params"][0].mul_(0.9)
        return super().step(closure)


class Broken(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("no step")


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(2))]


def test_update_of_an_optimizer_is_counted_once_however_its_step_is_made():
    # Making one of the parent's class is what makes torch call hooks in its step.
    plain, decayed, two = torch.optim.SGD(parameters()), Decayed(parameters()), torch.optim.Adam(parameters())
    with counted_updates() as updates:
        decayed.step()
        assert updates.count == 1
        plain.step()
        two.step()
        assert updates.count == 3
        with pytest.raises(RuntimeError, match="no step"):
            Broken(parameters()).step()
        decayed.step()
    assert updates.count == 4
    decayed.step()
    assert updates.count == 4


def test_random_numbers_of_a_gpu_in_use_are_put_back(monkeypatch):
    restored = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["before"])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.append)
    before = torch.get_rng_state()
    with same_random_numbers():
        torch.rand(1)
        assert restored == []
    assert restored == [["before"]]
    assert torch.equal(before, torch.get_rng_state())


def test_random_numbers_of_a_gpu_that_is_not_in_use_are_not_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: pytest.fail("this would start CUDA"))
    with same_random_numbers():
        torch.rand(1)
