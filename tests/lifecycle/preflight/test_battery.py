"""The battery: what is tried after what, what is counted, and what a check leaves behind."""

import pytest
import torch
from torch import nn

from lifecycle.checks import stops_the_step
from lifecycle.preflight.battery import counted_updates, run_checks, same_random_numbers
from lifecycle.preflight.check import Check, Found, Trial


def check(name: str, found: Found, after: str = "") -> Check[None]:
    return Check(f"overfit.{name}", "?", "", "", "", lambda seen: found, after=after and f"overfit.{after}")


def stops(trial: Trial) -> bool:
    return stops_the_step(trial.status, trial.severity, trial.required)


@pytest.mark.parametrize(
    ("found", "stopped"),
    [
        (Found("insufficient", "one output is as good as any"), False),
        (Found("fail", "unwise", severity="warning"), False),
        (Found("insufficient", "not measured", required=True), True),
        (Found("fail", "broken"), True),
    ],
)
def test_check_after_one_that_did_not_pass_stops_only_where_that_one_does(found, stopped):
    checks = [check("first", found), check("second", Found("pass", ""), "first"),
              check("third", Found("pass", ""), "second")]  # fmt: skip
    trials = run_checks(checks, None, device="host", not_applicable={})
    assert [stops(trial) for trial in trials] == [stopped] * 3
    assert [trial.status for trial in trials[1:]] == ["insufficient"] * 2
    # Alone it is tried: nothing is known of the one before.
    assert [trial.status for trial in run_checks(checks[1:2], None, device="host", not_applicable={})] == ["pass"]
    (again,) = run_checks(checks[1:2], None, device="host", not_applicable={}, earlier=trials[:1])
    assert again.required == stopped


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
