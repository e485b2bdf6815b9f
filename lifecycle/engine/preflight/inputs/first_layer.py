"""Do the values that meet the first weights have a size to train on?

Raw inputs may be of any size: a network can normalise, encode or embed them. So the fresh network runs on a few rows,
and every product with weights is watched. What enters one without having come through another was made of the inputs
alone, by encodings, norms, embeddings or nothing: that is what is measured, column by column.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import probe_rows, row_losses, rows_of, step_generator
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Outcome

# Root mean squares of a column, and the length of what one output is made of. An MLP lost a tenth of what it learns at
# 30 and half at 100, and learned nothing from twelve columns of 0.01: decision 0021.
LARGE, SHORT, RATIO = 30.0, 0.1, 1000.0
# A layer's input that changes by less when the raw one is rescaled was normalised before it.
SAME = 0.1
# Of a column's size: what varies by less is constant but for rounding.
SMALLEST = 1e-6
DROWNED = "drowned"
MOST_VALUES = 10_000


@dataclass(frozen=True)
class Entering:
    """Sizes of the columns of a tensor that meets its first weights, and how far each varies.

    `values` are the columns themselves, (columns, n).
    """

    call: int
    values: Tensor
    sizes: Tensor
    deviations: Tensor
    points: int

    @property
    def largest(self) -> float:
        return float(self.sizes.max())

    @property
    def length(self) -> float:
        """Of the values that one output is made of: a convolution sees each channel at `points` places."""
        return float(self.sizes.square().sum() * self.points) ** 0.5

    @property
    def ratio(self) -> float:
        """How many times the largest column is larger than the median of what varies."""
        used = self.deviations[self.deviations > SMALLEST * self.sizes]
        return self.largest / float(used.median()) if len(used) else 1.0


@dataclass
class Trace:
    """What entered the products with parameters: those made of the inputs alone, and all, in order of the calls."""

    entering: list[Entering] = field(default_factory=list)
    later: list[Tensor] = field(default_factory=list)


def scaled(subject: Subject) -> Outcome:
    """Sizes in front of the first weights; a size that a norm takes away again is no fault."""
    trace = _trace(subject, {})
    if not trace.entering:
        return Outcome("not_applicable", "no product with the weights of a layer could be followed")
    largest = max(entry.largest for entry in trace.entering)
    shortest = min(entry.length for entry in trace.entering)
    ratio = max(entry.ratio for entry in trace.entering)
    evidence = f"input scale (RMS of a column) at the first layer: up to {largest:.3g}"
    if subject.claims.start == "trained":
        return Outcome("pass", f"{evidence}; trained weights know their inputs' size", largest, LARGE)
    if ratio > RATIO:
        return Outcome(
            "fail",
            f"{evidence}; the largest is {ratio:.3g} times what varies in the median one, and drowns it",
            ratio,
            RATIO,
        )
    odd = [entry for entry in trace.entering if entry.largest > LARGE or entry.length < SHORT]
    if not odd and (drowned := _drowned(subject, trace)) is not None:
        return drowned
    if not odd or _normalised_later(subject, trace, odd):
        normed = "; a norm behind them takes it away" if odd else ""
        return Outcome("pass", evidence + normed, largest, LARGE)
    if largest > LARGE:
        return Outcome("fail", evidence, largest, LARGE)
    cause = "inputs that were divided twice, or are in too large a unit"
    return Outcome(
        "fail", f"what the first outputs are made of has length {shortest:.2g}", shortest, SHORT, cause=cause
    )


def _drowned(subject: Subject, trace: Trace) -> Outcome | None:
    """A warning for an input whose own columns are short where others, as embeddings, enter beside them."""
    for name in (name for name, tensor in subject.training.valued.items() if tensor.is_floating_point()):
        other = _trace(subject, {}, rolled=name)
        lengths = []
        for entry, moved in zip(trace.entering, other.entering, strict=False):
            if entry.values.shape != moved.values.shape:
                break
            own = (entry.values != moved.values).any(1)
            if bool(own.any()):
                lengths.append((replace(entry, sizes=entry.sizes[own]).length, bool(own.all())))
        if lengths and max(lengths)[0] < SHORT and not max(lengths)[1]:
            evidence = (
                f"what {name} gives the first layer has length {max(lengths)[0]:.2g} beside other inputs' columns"
            )
            cause = (
                "an input that was divided twice, or is in too large a unit: the others are all that is learned from"
            )
            fix = f"bring the columns of {name} to a size of about 1"
            return Outcome("fail", evidence, max(lengths)[0], SHORT, cause, fix, severity="warning", code=DROWNED)
    return None


def _normalised_later(subject: Subject, trace: Trace, odd: list[Entering]) -> bool:
    """Whether all later layers get the same when the odd inputs are brought to size 1."""
    again = _trace(subject, {entry.call: 1 / max(entry.largest, 1e-30) for entry in odd})
    calls = {entry.call for entry in trace.entering}
    pairs = [
        (a, b)
        for call, (a, b) in enumerate(zip(trace.later, again.later, strict=False))
        if call not in calls and call > min(entry.call for entry in odd)
    ]
    return len(pairs) > 0 and all(_same(a, b) for a, b in pairs)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).norm()) <= SAME * float(b.norm())


def _trace(subject: Subject, factors: dict[int, float], rolled: str = "") -> Trace:
    """A forward pass in training mode; the entering tensor of a call in `factors` is multiplied by its factor.

    An input that is `rolled` gives each row the values of the one before.
    """
    seed_torch(0)
    rows = spread_rows(subject.training, probe_rows(subject))
    inputs, targets = rows_of(subject.training, rows, subject.device)
    if rolled:
        inputs = {**inputs, rolled: inputs[rolled].roll(1, 0)}
    if subject.recipe.augment is not None:
        inputs, targets = subject.recipe.augment(inputs, targets, step_generator(subject, 0))
    model = subject.model().train().requires_grad_(False)
    trace = Trace()
    with _watched(trace, factors, model, len(rows)), torch.enable_grad():
        outputs, _ = row_losses(subject, model, inputs, targets)
    if isinstance(outputs, torch.Tensor):
        trace.later.append(outputs.detach().float())
    return trace


@contextlib.contextmanager
def _watched(trace: Trace, factors: dict[int, float], model: nn.Module, rows: int) -> Iterator[None]:
    """Every call of torch meanwhile goes through here, so that no way to write a layer is missed.

    No parameter has gradients meanwhile. The result of a product gets one, and passes it on to all that is made of it.
    """
    products = _products()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func not in products:
                return func(*args, **kwargs)
            data = _data(products[func], args, weights, rows)
            if data is None:
                return func(*args, **kwargs)
            call = len(trace.later)
            trace.later.append(data.detach().float())
            if not data.requires_grad:
                points = args[1][0, 0].numel() if products[func] == _CHANNELS else 1
                trace.entering.append(Entering(call, *_sizes(data, products[func]), points))
                args = (data * factors.get(call, 1.0), *args[1:])
            return _passed(func(*args, **kwargs))

    with Watch():
        yield


def _data(axis: int, args: tuple[Any, ...], weights: set[int], rows: int) -> Tensor | None:
    """The rows' values in a product with weights; None if it is none, as in attention or with a mask."""
    data = args[0] if args and isinstance(args[0], torch.Tensor) else None
    if data is None or not data.is_floating_point() or data.ndim < 2 or all(size % rows for size in data.shape[:-1]):
        return None
    if axis in (_ROWS_BY_WEIGHTS, _ELEMENTWISE):
        other = args[1] if len(args) > 1 else None
        if not isinstance(other, torch.Tensor) or other.untyped_storage().data_ptr() not in weights:
            return None
    # A norm's own scale behind other layers is not of interest.
    return None if axis == _ELEMENTWISE and data.requires_grad else data


def _passed(result: Any) -> Any:
    """The result with a gradient that its descendants inherit; not a leaf, which could not be changed in place."""
    if isinstance(result, tuple):
        return tuple(_passed(part) for part in result)
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return result
    return result + torch.zeros((), device=result.device, dtype=result.dtype, requires_grad=True)


# Where a product's columns lie: channels, or last; the other operand must be a parameter in the latter two.
_CHANNELS, _LAST, _ROWS_BY_WEIGHTS, _ELEMENTWISE = range(4)


def _sizes(data: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """The columns' values, the root mean square of each, and its standard deviation.

    The last 1 % of a column's values is cut, since it may be a typo; a column that is mostly zero, such as a rare
    category, has the size of its other values.
    """
    columns = data.detach().float().movedim(1 if axis in (_CHANNELS, _ELEMENTWISE) else -1, 0)
    columns = columns.reshape(len(columns), -1).nan_to_num(0.0, 0.0, 0.0)
    columns = columns[:, :: max(1, columns.shape[1] // MOST_VALUES)]
    size = columns.abs()
    clipped = size.minimum(size.quantile(0.99, dim=1, keepdim=True))
    used = (clipped > 0).sum(dim=1).clamp_min(1)
    return columns, (clipped.square().sum(dim=1) / used).sqrt(), columns.std(dim=1, correction=0)


def _products() -> dict[Callable[..., Any], int]:
    """Functions that multiply data, their first argument, by weights; and where the data's columns lie."""
    names = [f"{kind}{dimensions}d" for kind in ("conv", "conv_transpose") for dimensions in (1, 2, 3)]
    convolutions = [getattr(module, name) for name in names for module in (torch, functional)]
    recurrent = [getattr(torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")]  # pyright: ignore[reportAttributeAccessIssue]
    layers = (functional.linear, functional.bilinear, functional.multi_head_attention_forward, *recurrent)
    products = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mm, torch.Tensor.mm)
    elementwise = (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__)
    return {
        **dict.fromkeys(convolutions, _CHANNELS), **dict.fromkeys(layers, _LAST),
        **dict.fromkeys(products, _ROWS_BY_WEIGHTS), **dict.fromkeys(elementwise, _ELEMENTWISE),
    }  # fmt: skip


CHECKS = (check_of("inputs.scaled", scaled),)
