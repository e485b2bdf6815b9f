"""Free numbers in the place of a network's outputs: which range they keep to, and the lowest loss that they get.

Not every output is free: probabilities sum to 1, log-probabilities are logarithms of such. A free "log-probability"
has no lowest loss.

Outputs that are several things side by side: a mixture's shares, means and spreads in the channels of one tensor.

Looked at only where free numbers gain without end: shares that need not sum to 1 gain a little for nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainworthy.lifecycle.error_causes import ran_out_of_memory
from trainworthy.lifecycle.gates.check import ProbeError

Link = Callable[[Tensor], Tensor]
# Lowest and highest values, of each channel, without end where nothing holds them.
Ends = tuple[Tensor, Tensor]

# Of LBFGS; a log loss of 64 classes is within 0.1 % after 20. Of more than MANY numbers as many as are as much work,
# with as many gradients kept as take 400 MB: one of five million numbers takes 20 MB and a tenth of a second.
ITERATIONS, FEWEST_ITERATIONS, MANY = 60, 12, 2**20
KEPT, FEWEST_KEPT = 100, 2
# Numbers this large have left every range that a loss has a lowest value in.
ENDLESS = 1e12
# Numbers beyond this are counted in units of the largest: a first step of 1 is lost in 4e8 of 32 bits.
LARGE = 1e4
# To an end of a range, for numbers of 32 bits.
NEAREST = 1e-7
# How far from 1 a sum or a length may be: outputs in bfloat16 are 0.01 off.
NEAR_ONE = 0.02


def probed(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of numbers that no network gave. Raises ProbeError for what it raises, but for too little memory."""

    def guarded(*given: Any) -> Tensor:
        try:
            return loss(*given)
        except ProbeError:
            raise
        except Exception as error:
            if ran_out_of_memory(error):
                raise
            raise ProbeError from error

    return guarded


def lowest_loss(
    start: dict[int, Tensor], mean: Callable[[dict[int, Tensor]], Tensor]
) -> tuple[float, dict[int, Tensor]]:
    """The lowest finite value of `mean` that LBFGS finds from `start`, and the parameters there. Raises ProbeError."""
    mean = probed(mean)
    if not start:
        return float(mean(start)), start
    sizes = {name: float(value.abs().max()) if value.numel() else 0.0 for name, value in start.items()}
    total = sum(value.numel() for value in start.values())
    # The first step has a length of 1 over all numbers together: of millions, each would move less than 32 bits tell.
    of_many = float(total) if total > MANY else 1.0
    units = {name: size if size > LARGE else of_many for name, size in sizes.items()}
    iterations = max(FEWEST_ITERATIONS, min(ITERATIONS, ITERATIONS * MANY // max(1, total)))
    parameters = {name: (value / units[name]).requires_grad_() for name, value in start.items()}

    def numbers() -> dict[int, Tensor]:
        return {name: value if units[name] == 1.0 else value * units[name] for name, value in parameters.items()}

    best, at = float("inf"), start
    optimizer = torch.optim.LBFGS(
        list(parameters.values()), max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-12,
        history_size=max(FEWEST_KEPT, min(KEPT, KEPT * MANY // max(1, total))),
    )  # fmt: skip

    def closure() -> Tensor:
        nonlocal best, at
        optimizer.zero_grad()
        given = numbers()
        if not all(bool((number.detach().abs() <= ENDLESS).all()) for number in given.values()):
            raise _EndlessError
        value = mean(given)
        value.backward()
        if value.item() < best:
            best, at = value.item(), {name: number.detach().clone() for name, number in given.items()}
        return value

    # Its line search ends with an IndexError where a loss is not finite; the lowest one so far stays.
    with contextlib.suppress(IndexError, _EndlessError):
        optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    return best, at


class _EndlessError(Exception):
    """Ends a search: L-BFGS would double its steps until they are no numbers."""


def link_of(outputs: Sequence[Tensor]) -> Link:
    """What turns any numbers into outputs such as these."""
    shape = outputs[0].shape
    for dim in range(1, len(shape)):
        link = link_along(outputs, dim) if shape[dim] > 1 else None
        if link is not None:
            return link
    values = torch.cat([_finite(tensor) for tensor in outputs])
    if bool((values < 0).any()):
        return same
    return torch.sigmoid if bool((values <= 1).all()) else functional.softplus


def link_along(outputs: Sequence[Tensor], dim: int) -> Link | None:
    """Probabilities, log-probabilities or a direction along a dimension."""

    def is_one(reduced: Sequence[Tensor]) -> bool:
        values = torch.cat([_finite(tensor) for tensor in reduced])
        return len(values) > 0 and bool(((values - 1).abs() < NEAR_ONE).all())

    if is_one([t.sum(dim) for t in outputs]) and not any(bool((_finite(t) < 0).any()) for t in outputs):
        return lambda t: t.softmax(dim)
    if is_one([t.exp().sum(dim) for t in outputs]):
        return lambda t: t.log_softmax(dim)
    return (lambda t: functional.normalize(t, dim=dim)) if is_one([t.norm(dim=dim) for t in outputs]) else None


def _finite(tensor: Tensor) -> Tensor:
    return tensor[torch.isfinite(tensor)]


def same(tensor: Tensor) -> Tensor:
    return tensor


def before(link: Link, outputs: Tensor) -> Tensor | None:
    """Numbers of which the link makes these outputs; None of a link that joins several.

    From zeros alone the search does not come to outputs around 1e8 or 1e-6.
    """
    if link is same:
        return outputs
    if link is torch.sigmoid:
        return outputs.clamp(NEAREST, 1 - NEAREST).logit()
    if link is functional.softplus:
        outputs = outputs.clamp(min=NEAREST)
        return outputs + (-torch.expm1(-outputs)).log()
    return None


def within(link: Link, ends: Ends) -> Link:
    """The link, and nothing beyond the ends."""
    return lambda tensor: link(tensor).clamp(*ends)


def all_at_ends(pairs: Sequence[tuple[Tensor, Ends]]) -> bool:
    """Whether the ends hold every one of these values: no lowest place of a loss, only the last one that it comes to.

    A density has one between the ends of its spread; a loss with the wrong sign has none.
    """
    return all(bool(((values <= low) | (values >= high)).all()) for values, (low, high) in pairs)


# Every pair of two places is tried as a part's first and last.
MOST_CHANNELS = 64


def held_links(links: Mapping[int, Link], outputs: Mapping[int, Tensor], ends: Mapping[int, Ends]) -> dict[int, Link]:
    """The links by the place of a leaf, with parts along dimension 1 of the seen outputs, and within the ends."""
    parted = {at: joined(outputs[at]) if link is same and at in outputs else link for at, link in links.items()}
    return {at: within(link, ends[at]) if at in ends else link for at, link in parted.items()}


def joined(outputs: Tensor) -> Link:
    """What turns any numbers into such outputs: parts that sum to 1, their logarithms, or directions."""
    parts = _parts(outputs)
    if not parts:
        return same

    def link(tensor: Tensor) -> Tensor:
        pieces, done = [], 0
        for start, stop, of_part in parts:
            pieces += [tensor[:, done:start], of_part(tensor[:, start:stop])]
            done = stop
        return torch.cat([*pieces, tensor[:, done:]], 1)

    return link


def _parts(outputs: Tensor) -> Sequence[tuple[int, int, Link]]:
    """First channel, the one behind the last, and the link, of parts that do not overlap."""
    channels = outputs.shape[1] if outputs.ndim > 1 else 0
    parts, start = [], 0
    while start < channels - 1 and channels <= MOST_CHANNELS:
        stops = range(start + 2, channels + 1)
        stop, link = next(
            ((stop, link) for stop in stops if (link := link_along([outputs[:, start:stop]], 1)) is not None), (0, same)
        )
        parts += [(start, stop, link)] if stop else []
        start = stop or start + 1
    return parts
