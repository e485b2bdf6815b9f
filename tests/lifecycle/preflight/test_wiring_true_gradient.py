"""Gradients held against the slope of the loss: healthy networks pass, planted faults are told by code and by name."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.gradients import PARTS, asked, kind
from benchmarks.healthy_gradients import DEVIATES, HEALTHY_GRADIENTS, Read, of
from benchmarks.networks import feed_forward, mlp
from benchmarks.planted_gradients import PLANTED_GRADIENTS, own
from trainworthy.lifecycle.engine.outputs.directional_derivative import Slope, slopes_of
from trainworthy.lifecycle.engine.outputs.true_gradient import compare
from trainworthy.lifecycle.engine.preflight.wiring import true_gradient
from trainworthy.lifecycle.engine.preflight.wiring.true_gradient import (
    CHANGED,
    DROWNED,
    NOISY,
    OFF,
    TURNED,
    gradient_is_slope,
)

CODES = {
    "every_sign": TURNED, "hook_flips_all": TURNED, "hook_after_flips": TURNED, "optimizer_flips": TURNED,
    "hook_adds_noise": DROWNED, "optimizer_adds_noise": DROWNED, "dropout_redrawn": NOISY,
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY_GRADIENTS)
def test_healthy_network_passes_and_what_it_holds_on_purpose_is_a_warning(name):
    found, _ = asked(HEALTHY_GRADIENTS[name](0).subject())
    assert kind(found) == ("warning" if name in DEVIATES else "nothing"), found.evidence


@pytest.mark.parametrize("name", PLANTED_GRADIENTS)
def test_gradient_that_is_not_the_slope_is_told(name):
    make, wanted = PLANTED_GRADIENTS[name]
    found, _ = asked(make(1).subject())
    assert kind(found) == wanted, found.evidence
    expected = "" if wanted == "nothing" else CODES.get(name, CHANGED if name.startswith("optimizer") else OFF)
    assert found.code == expected


def test_share_and_parameter_are_named():
    found, _ = asked(PLANTED_GRADIENTS["wrong_factor"][0](0).subject())
    assert found.observed == pytest.approx(0.5, abs=1e-4)
    assert "0.50 of the slope of the loss for layers.0." in found.evidence
    assert "Own" in found.evidence
    times, _ = asked(PLANTED_GRADIENTS["optimizer_multiplies"][0](0).subject())
    assert times.observed == pytest.approx(4.0, abs=1e-4)


def test_line_that_leaves_the_graph_is_named():
    found, _ = asked(PLANTED_GRADIENTS["detached_branch"][0](0).subject())
    assert "detach at planted_gradients.py:" in found.evidence


def test_network_whose_loss_differs_from_call_to_call_is_not_judged():
    class Drawn(Read):
        calls = 0

        def forward(self, inputs):
            # As numbers that no seed reaches: another one in each call, and none so large that the loss is flat.
            Drawn.calls += 1
            return super().forward(inputs) + 0.1 * (Drawn.calls % 7)

    found, _ = asked(of(lambda: Drawn(feed_forward(12, 32, 1)))(0).subject())
    assert (found.status, found.required) == ("insufficient", False)


def test_error_of_the_network_at_moved_weights_is_not_the_user_s():
    class Breaks(Read):
        calls = 0

        def forward(self, inputs):
            Breaks.calls += 1
            if Breaks.calls > 3:
                raise RuntimeError("no more")
            return super().forward(inputs)

    found, _ = asked(of(lambda: Breaks(feed_forward(12, 32, 1)))(0).subject())
    assert (found.status, found.required) == ("insufficient", False)


def test_loss_of_steps_alone_has_no_slope_and_is_not_judged():
    class Steps(Read):
        def forward(self, inputs):
            out = super().forward(inputs)
            return out + (1e7 * out).frac().detach()

    found, _ = asked(of(lambda: Steps(feed_forward(12, 32, 1)), lambda o, t: o)(0).subject())
    assert found.status == "not_applicable"


def test_network_that_is_too_large_is_not_copied(monkeypatch):
    monkeypatch.setattr(true_gradient, "MOST_WEIGHTS", 10)
    assert gradient_is_slope(mlp(0).subject()).status == "not_applicable"


def test_turned_gradient_without_a_reason_in_the_code_fails(monkeypatch):
    """As a kernel of torch's own would do it."""
    setup = PLANTED_GRADIENTS["wrong_sign"][0](0)
    assert asked(setup.subject())[0].severity == "warning"
    monkeypatch.setattr(true_gradient.compare.__globals__["Breaks"], "look", lambda *_: ())
    found, _ = asked(setup.subject())
    assert (kind(found), found.code) == ("fail", TURNED)


def test_weights_and_random_numbers_are_as_before_and_no_gradient_is_left():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    before, x = [one.clone() for one in model.parameters()], torch.randn(5, 3)
    compare(model, lambda: model(x).square().mean())
    assert all(map(torch.equal, before, model.parameters()))
    assert all(one.grad is None for one in model.parameters())


def test_gradient_at_a_kink_lies_between_the_slopes_to_both_sides():
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    model = nn.ParameterDict({"w": weight})
    found = slopes_of(model, lambda: weight.abs().sum() + weight.sum()).along_gradient()
    assert not found.known
    assert found.relative_error == 0


@pytest.mark.parametrize(("loss", "gradient", "share"), [(2.0, 1.0, 0.5), (1.0, -1.0, -1.0)])
def test_share_is_the_gradient_by_the_slope(loss, gradient, share):
    assert Slope(loss, 1e-9, gradient, 1.0).backward_share == pytest.approx(share)


def test_missing_term_across_the_gradient_is_seen_by_random_directions():
    """Along the gradient itself the slope is right."""
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    model = nn.ParameterDict({"w": weight})
    loss = lambda: 3 * weight[0] + 4 * weight[1].detach() + weight[1] * 0
    assert slopes_of(model, loss).along_gradient().of_gradient == pytest.approx(1)
    found = compare(model, loss)
    assert [one.name for one in found.off] == ["w"]


def test_bench_has_its_parts_and_own_layers_are_made_of_functions():
    assert PARTS == ("healthy", "own", "planted")
    layer = own(torch.tanh, lambda x, g: g)
    assert replace(mlp(0), network=lambda: Read(nn.Linear(12, 1), layer)).subject().model() is not None
