"""The first bad operation: found by where numbers come from, in networks and losses of many kinds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.incidents.anomaly import Birth, watched

HERE = Path(__file__).parent


def first_bad(model: nn.Module, inputs: Tensor, loss_fn: Callable[[Tensor], Tensor]) -> Birth | None:
    """Where the first bad number of loss or gradients comes from."""
    named = {f"parameter {name}": parameter.detach() for name, parameter in model.named_parameters()}
    with watched(model, HERE, named | {"input x": inputs}) as births:
        loss = loss_fn(model(inputs))
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        return births.first([loss.detach(), *gradients])


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


ROWS = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))


class Attention(nn.Module):
    """A causal attention block that makes its mask of -inf by hand."""

    def __init__(self, *, hide_all: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.hide_all = nn.Linear(4, 12), nn.Linear(4, 1), hide_all

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(0 if self.hide_all else 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        return self.out(weights @ v)


class Squared(nn.Module):
    """Its own autograd function divides by zero on the way back."""

    def forward(self, x: Tensor) -> Tensor:
        return BadBackward.apply(x.sum(dim=1))


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (x * 0)


def test_network_with_finite_numbers_has_no_first_bad_operation():
    assert first_bad(mlp(), ROWS, lambda out: out.square().mean()) is None


def test_causal_mask_of_minus_infinity_is_no_fault():
    assert first_bad(Attention(), torch.randn(2, 5, 4), lambda out: out.square().mean()) is None
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    wrapped = nn.Sequential()
    wrapped.forward = lambda x: layer(x, src_mask=mask, is_causal=True)
    wrapped.add_module("layer", layer)
    assert first_bad(wrapped, torch.randn(2, 5, 8), lambda out: out.square().mean()) is None


def test_row_that_a_mask_hides_whole_is_found_at_its_softmax():
    bad = first_bad(Attention(hide_all=True), torch.randn(2, 5, 4), lambda out: out.square().mean())
    assert bad is not None
    assert (bad.operation, bad.phase, bad.gave) == ("_softmax", "forward", "NaN")
    assert "test_anomaly.py" in bad.line
    assert "Attention" in bad.module


def test_infinity_that_nothing_comes_of_is_not_blamed_for_a_later_fault():
    def loss(out: Tensor) -> Tensor:
        unused = torch.log(torch.zeros(3))
        kept = torch.where(torch.isfinite(unused), unused, torch.zeros(3)).sum()
        return (out - out.detach()).abs().sqrt().sum() + kept

    bad = first_bad(mlp(), ROWS, loss)
    assert bad is not None
    assert (bad.phase, bad.node) == ("backward", "SqrtBackward0")
    assert "test_anomaly.py" in bad.line


def test_log_of_zero_is_blamed_and_not_the_product_that_made_nan_of_it():
    bad = first_bad(mlp(), ROWS, lambda out: (torch.log(out * 0) * torch.zeros_like(out)).sum())
    assert bad is not None
    assert (bad.operation, bad.gave, bad.phase) == ("log", "inf", "forward")


def test_overflow_of_half_precision_is_found_with_what_it_was_given():
    def loss(out: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return nn.functional.linear(out * 1e4, torch.full((1, 1), 3e4)).float().mean()

    bad = first_bad(mlp(), ROWS, loss)
    assert bad is not None
    assert bad.gave == "inf"
    assert "float16" in bad.evidence


def test_convolution_with_a_variance_of_zero_is_found_in_its_module():
    class Normed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x.mean()) / (x.std() - x.std())

    model = nn.Sequential(nn.Conv2d(1, 2, 3), Normed(), nn.Flatten(), nn.Linear(8, 1))
    bad = first_bad(model, torch.randn(3, 1, 4, 4), lambda out: out.mean())
    assert bad is not None
    assert (bad.operation, bad.phase, bad.module) == ("div", "forward", "1 (Normed)")


def test_own_autograd_function_is_found_on_the_way_back():
    bad = first_bad(nn.Sequential(nn.Linear(3, 3), Squared()), ROWS, lambda out: out.mean())
    assert bad is not None
    assert bad.phase == "backward"
    assert "BadBackward" in bad.node


def test_in_place_operation_that_spoils_a_tensor_is_found():
    bad = first_bad(mlp(), ROWS, lambda out: (out * 1.0).div_(torch.zeros(6, 1)).sum())
    assert bad is not None
    assert (bad.operation, bad.phase) == ("div_", "forward")


@pytest.mark.parametrize("bad_value", [float("nan"), float("inf")])
def test_input_that_was_not_finite_is_named_in_place_of_what_it_met(bad_value: float):
    rows = ROWS.clone()
    rows[2, 1] = bad_value
    bad = first_bad(mlp(), rows, lambda out: out.square().mean())
    assert bad is not None
    assert (bad.phase, bad.evidence) == ("before", "input x was not finite before the update")


def test_weight_that_was_not_finite_is_named():
    model = mlp()
    with torch.no_grad():
        model[2].weight[0, 0] = float("nan")
    bad = first_bad(model, ROWS, lambda out: out.square().mean())
    assert bad is not None
    assert "parameter 2.weight" in bad.evidence


def test_module_of_a_backward_operation_is_the_innermost_that_made_it():
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 0).norm(dim=1).sqrt()

    bad = first_bad(nn.Sequential(nn.Linear(3, 3), Norm()), ROWS, lambda out: out.mean())
    assert bad is not None
    assert (bad.phase, bad.module) == ("backward", "1 (Norm)")
    assert "test_anomaly.py" in bad.line
