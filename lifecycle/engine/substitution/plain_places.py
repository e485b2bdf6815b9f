"""A plain network for answers at many places of a row: the points of a mask, the bytes of a text.

Two hidden layers: convolutions on what lies around a point, on what is known before a byte. Points are those of the
grid that masks are judged by, and answers are brought to the masks' size. Inputs without these places count alike at
all places of their row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainworthy.lifecycle.engine.substitution.plain_network import (
    EMBEDDING,
    Columns,
    Input,
    described,
)
from trainworthy.lifecycle.engine.training.judging.places import Layout, channels_of, with_channels
from trainworthy.lifecycle.tasks import Kind

# Channels of a hidden layer, by the number of directions that places have: at 32 x 32 points a row costs 30 million
# multiplications forward, at 256 bytes 15 million.
CHANNELS = {1: 128, 2: 32}
# Points around one that a layer sees at once in each direction, and the gap between those of the second layer.
AROUND, GAP = 5, 2
# Places before one that the first layer sees.
BEFORE = 8
# Codes of a place that have an embedding each; higher ones share the last. Bytes, and what stands for none.
MOST_CODES = 512
# The share of places whose own code tells their target, from which on the input is the target itself.
TELLS = 0.99


class PlaceInput(NamedTuple):
    """An input with the answers' places: where its channels are, if any; numbers' mean and spread, or codes.

    `late`: a place sees the codes before its own, since its own one is its target.
    """

    channels: Layout
    codes: int
    mean: list[float]
    spread: list[float]
    late: bool


class PlaceInputs(NamedTuple):
    """What a plain network has to know of a training's inputs; those of `rows` have no places."""

    places: Mapping[str, PlaceInput]
    rows: Mapping[str, Input]

    def state(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "places": {name: spec._asdict() for name, spec in self.places.items()},
            "rows": {name: spec._asdict() for name, spec in self.rows.items()},
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> PlaceInputs:
        return cls(
            {name: PlaceInput(**spec) for name, spec in state["places"].items()},
            {name: Input(**spec) for name, spec in state["rows"].items()},
        )


def tells_target(codes: Tensor, targets: Tensor) -> bool:
    """Whether the code of a place, `(N, L)`, tells the target of the same place; those below 0 are none."""
    known = targets >= 0
    pairs = torch.stack([codes[known], targets[known]], dim=1)
    if targets[known].unique().numel() < 2:
        return False
    distinct, times = pairs.unique(dim=0, return_counts=True)
    _, place = distinct[:, 0].unique(return_inverse=True)
    most = torch.zeros(int(place.max()) + 1, dtype=times.dtype).scatter_reduce(0, place, times, "amax")
    return float(most.sum()) >= TELLS * len(pairs)


def described_places(
    inputs: Mapping[str, Tensor], places: tuple[int, ...], late: tuple[str, ...], known: Mapping[str, Layout], *,
    standardized: bool,
) -> PlaceInputs:  # fmt: skip
    """Of training rows' inputs, each `(N, ...)`; without `standardized`, the network takes numbers as they are.

    Of those that are `known` to have the places, on a grid of any proportions, that is not asked.
    """
    found: dict[str, Layout | None] = {
        name: known.get(name) or channels_of(tensor, places) for name, tensor in inputs.items() if tensor.numel()
    }
    return PlaceInputs(
        {
            name: _described(inputs[name], channels, name in late, standardized=standardized)
            for name, channels in found.items() if channels is not None
        },
        described(
            {name: inputs[name] for name, channels in found.items() if channels is None}, standardized=standardized
        ),
    )  # fmt: skip


class PlainPlaces(nn.Module):
    """Outputs are logits of each class at each of the `places`, the classes where the kind has them."""

    def __init__(self, inputs: PlaceInputs, kind: Kind, places: tuple[int, ...]) -> None:
        super().__init__()
        directions, (*judged, classes) = len(places), kind.answer_shape
        self.inputs, self.places, self.class_axis = dict(inputs.places), places, kind.class_axis
        self.grid = places if directions == 1 else tuple(judged)
        self.channels = nn.ModuleList(_Channels(spec, self.grid) for spec in inputs.places.values())
        width = sum(EMBEDDING if spec.codes else len(spec.mean) for spec in inputs.places.values())
        channels = CHANNELS[directions]
        # Where a point lies in its picture tells something; a text begins at its first byte for all.
        self.first = _layer(width + (directions if directions > 1 else 0), channels, directions, 1)
        self.second = _layer(channels, channels, directions, GAP)
        self.columns = Columns(inputs.rows)
        self.of_row = nn.Linear(self.columns.width, channels) if self.columns.width else None
        self.logits = _layer(channels, classes, directions, 0)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        hidden = self.first(self._before(self._places(inputs)))
        if self.of_row is not None:
            hidden = hidden + self.of_row(self.columns(inputs)).reshape(*hidden.shape[:2], *[1] * len(self.places))
        outputs = self.logits(torch.relu(self.second(torch.relu(hidden))))
        if self.grid != self.places:
            outputs = functional.interpolate(outputs, size=self.places, mode="nearest")
        return outputs.movedim(1, self.class_axis)

    def _places(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """All inputs with places, `(N, channels, ...)`."""
        parts = [made(inputs[name]) for name, made in zip(self.inputs, self.channels, strict=True)]
        if len(self.places) > 1:
            lines = [torch.linspace(-1, 1, size, device=parts[0].device) for size in self.grid]
            where = torch.stack(torch.meshgrid(*lines, indexing="ij"))
            parts.append(where.expand(len(parts[0]), *where.shape))
        return torch.cat(parts, dim=1)

    def _before(self, values: Tensor) -> Tensor:
        """With nothing on the left of a row's places, so that a layer which sees only what is before has as many."""
        return functional.pad(values, (BEFORE - 1, 0)) if len(self.places) == 1 else values


class _Channels(nn.Module):
    """An input as channels of the grid's places, `(N, channels, ...)`."""

    def __init__(self, spec: PlaceInput, grid: tuple[int, ...]) -> None:
        super().__init__()
        self.spec, self.grid = spec, grid
        self.codes = nn.Embedding(spec.codes, EMBEDDING) if spec.codes else None
        shape = (1, -1, *[1] * len(grid))
        self.register_buffer("mean", torch.tensor(spec.mean).reshape(shape) if spec.mean else None)
        self.register_buffer("spread", torch.tensor(spec.spread).reshape(shape) if spec.spread else None)

    def forward(self, tensor: Tensor) -> Tensor:
        if self.codes is not None:
            values = self.codes(tensor.long().clamp(0, self.spec.codes - 1)).movedim(-1, 1)
        else:
            numbers = with_channels(tensor, self.spec.channels).float()
            values = ((numbers - self.get_buffer("mean")) / self.get_buffer("spread")).nan_to_num(0.0)
        if tuple(values.shape[2:]) != self.grid:
            values = functional.interpolate(values, size=self.grid, mode="area")
        return functional.pad(values, (1, -1)) if self.spec.late else values


def _layer(width: int, channels: int, directions: int, gap: int) -> nn.Module:
    """A convolution that sees a place alone (gap 0), or those around or before it."""
    if directions == 1:
        return nn.Conv1d(width, channels, BEFORE if gap == 1 else 1)
    reach = gap * (AROUND // 2)
    return nn.Conv2d(width, channels, AROUND if gap else 1, padding=reach, dilation=max(1, gap))


def _described(tensor: Tensor, channels: Layout, late: bool, *, standardized: bool) -> PlaceInput:
    if channels == "none" and not tensor.is_floating_point():
        codes = int(tensor.long().amax().clamp(0, MOST_CODES - 2)) + 2
        return PlaceInput(channels, codes, [], [], late)
    values = with_channels(tensor, channels).double().movedim(1, 0).flatten(1)
    if not standardized:
        return PlaceInput(channels, 0, [0.0] * len(values), [1.0] * len(values), late)
    known = values.where(values.isfinite(), torch.nan)
    mean = known.nanmean(dim=1, keepdim=True).nan_to_num(0.0)
    spread = (known - mean).square().nanmean(dim=1).sqrt().nan_to_num(0.0)
    return PlaceInput(channels, 0, mean[:, 0].tolist(), torch.where(spread > 0, spread, 1.0).tolist(), late)
