"""Were training and validation rows prepared alike?

Validation rows may drift: months differ. What drift looks like is taken from the training rows themselves, which are
cut into blocks in the order of the file: a difference counts if it is far outside what the blocks show among
themselves, and if another preparation (another order of columns, other codes) would explain it better.

Columns, category codes or pixels in another order: what fits the training rows better than the order given.

What blocks of the training rows show among themselves is drift and chance; an order convicts only if it explains the
validation rows as well as a block is explained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import rows_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome

# Fewer held-out rows show no distribution; rows and columns looked at.
FEWEST_ROWS, MOST_ROWS, MOST_COLUMNS = 20, 4000, 64
# Beyond the largest difference of blocks: by so many times it, and at least by a factor of SCALE or SHIFT sizes.
BEYOND, SCALE, SHIFT = 4.0, 1.5, 0.5
# A factor that convicts a column alone; else nearly all must be off.
ALONE = 30.0
# A column has a scale if so many of its values are not its median.
SPREAD_OUT = 0.05
# Share of rows that one value must have, and may not have in the other.
ATOM, NO_ATOM = 0.02, 0.001


def same_preprocessing(subject: Subject) -> Outcome:
    """Names, types and shapes, then each input's values: scale, order of columns, codes, missing values."""
    training, held_out = subject.training.inputs, subject.held_out.inputs
    form = _form(training, held_out)
    if form:
        return Outcome("fail", form)
    beyond = _beyond_embedding(subject)
    if beyond:
        return Outcome("fail", beyond)
    rows = len(subject.held_out.targets), len(subject.training.targets)
    if min(rows) < FEWEST_ROWS:
        return Outcome("pass", f"names, types and shapes are equal; {min(rows)} rows show no more")
    training, held_out = subject.training.valued, subject.held_out.valued
    faults = [f"{name}: {fault}" for name in training if (fault := _differs(training[name], held_out[name]))]
    if faults:
        return Outcome("fail", "; ".join(faults), len(faults), 0)
    return Outcome("pass", f"{len(training)} inputs differ no more than blocks of the training rows", 0, 0)


def _form(training: dict[str, Tensor], held_out: dict[str, Tensor]) -> str:
    """What differs without a look at values. A dimension of sequences may: they can be padded split by split."""
    if set(training) != set(held_out):
        return f"inputs only in one of them: {sorted(set(training) ^ set(held_out))}"
    for name, tensor in training.items():
        other = held_out[name]
        if tensor.dtype != other.dtype:
            return f"{name} is {tensor.dtype} in training and {other.dtype} in validation"
        if tensor.ndim != other.ndim:
            return f"{name} has shape {tuple(tensor.shape)} in training and {tuple(other.shape)} in validation"
        if bool(tensor.numel()) != bool(other.numel()):
            return f"{name} has shape {tuple(tensor.shape)} in training and {tuple(other.shape)} in validation"
        if (
            tensor.ndim > 2
            and tensor.shape[1:] != other.shape[1:]
            and sorted(tensor.shape[1:]) == sorted(other.shape[1:])
        ):
            return f"{name} has its dimensions in another order: {tuple(tensor.shape)} and {tuple(other.shape)}"
    return ""


def _beyond_embedding(subject: Subject) -> str:
    """An integer of either part that the network refuses; looked up on the CPU, where it raises and ends nothing."""
    model = subject.build().eval()
    for part, data in (("training", subject.training), ("validation", subject.held_out)):
        whole = {n: t for n, t in data.valued.items() if not t.is_floating_point() and t.dtype != torch.bool}
        for name, tensor in whole.items():
            flat = tensor.reshape(len(tensor), -1)
            ends = torch.stack([flat.amin(dim=1).argmin(), flat.amax(dim=1).argmax()]).cpu()
            # The middle row beside them, so that the fault is these rows' and not the network's.
            middle = torch.tensor([len(tensor) // 2] * 2)
            if not _refused(model, data, middle) and (why := _refused(model, data, ends)):
                return f"{name}: the network refuses {part} rows with its least or its largest value: {why}"
    return ""


def _refused(model: Any, data: Any, rows: Tensor) -> str:
    """The error's type alone, since its message may hold a row's values."""
    try:
        with torch.no_grad():
            model(rows_of(data, rows, "cpu")[0])
    except (IndexError, RuntimeError) as error:
        return type(error).__name__
    return ""


def _differs(training: Tensor, held_out: Tensor) -> str:
    """How the two were prepared otherwise, "" if they were not as far as their values show."""
    if training.shape[1:] != held_out.shape[1:]:
        return ""
    sides = Sides(_columns(training), _columns(held_out))
    whole = not training.is_floating_point() or bool((training == training.round()).all() and training.max() > 1)
    if whole and training.dtype != torch.bool and (fault := other_codes(sides)):
        return fault
    if not training.is_floating_point():
        return other_order(sides)
    used = np.flatnonzero(sides.training.std(axis=0) + sides.held_out.std(axis=0) > 0)
    sides = Sides(sides.training[:, used], sides.held_out[:, used])
    if not len(used):
        return ""
    return other_order(sides) or _other_scale(sides) or _other_missing(sides) or turned_images(training, held_out)


def _columns(tensor: Tensor) -> np.ndarray:
    """(rows, columns) of the values: channels for images, evenly chosen columns for wide tables."""
    step = max(1, len(tensor) // MOST_ROWS)
    values = tensor[::step].detach().cpu()
    if values.ndim > 2:
        # A channel's mean and some of its points: enough to tell channels apart, at any number of points.
        flat = values.flatten(2)
        values = flat[:, :, :: max(1, flat.shape[2] // 16)][:, :, :16]
        values = values.permute(0, 2, 1).flatten(0, 1)
    values = values.reshape(len(values), -1).double().numpy()
    values = values[:, :: max(1, values.shape[1] // MOST_COLUMNS)]
    return np.nan_to_num(values, posinf=0.0, neginf=0.0)


def _sizes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column without its outermost 1 %."""
    low, high = np.quantile(values, [0.005, 0.995], axis=0)
    # A column that is nearly always one value has its information outside of the quantiles.
    cut = np.where(high > low, np.clip(values, low, high), values)
    return cut.mean(axis=0), cut.std(axis=0)


def _other_scale(sides: Sides) -> str:
    """Scale or place far outside of the blocks' in nearly all columns, or in one by far."""
    mean, size = _sizes(sides.training)
    ratio, shift = _scale_and_shift(*_sizes(sides.held_out), mean, size)
    null = [_scale_and_shift(*_sizes(block), mean, size) for block in sides.blocks]
    usual_ratio = np.max([np.abs(pair[0]) for pair in null], axis=0)
    usual_shift = np.max([np.abs(pair[1]) for pair in null], axis=0)
    judged = _spread_out(sides.training) & _spread_out(sides.held_out)
    off = (np.abs(ratio) > np.log(SCALE) + BEYOND * usual_ratio) | (np.abs(shift) > SHIFT + BEYOND * usual_shift)
    alone = (np.abs(ratio) > np.log(ALONE) + BEYOND * usual_ratio) | (np.abs(shift) > ALONE + BEYOND * usual_shift)
    lost = _spread_out(sides.training) & (sides.held_out.std(axis=0) == 0)
    off, alone = (off & judged) | lost, alone & judged
    # A column or two that drift are no preparation; a single one counts if its scale, and not its place, is off.
    single = len(off) == 1 and bool((np.abs(ratio) > np.log(2) + BEYOND * usual_ratio)[0])
    enough = off.sum() >= max(2, MOST_OF * (judged | lost).sum()) or lost.all() or alone.any() or single
    if not enough:
        return ""
    worst = int(np.argmax(np.abs(ratio) / np.log(SCALE) + np.abs(shift) / SHIFT))
    now = _sizes(sides.held_out)
    return (
        f"{int((off | alone).sum())} of {len(off)} columns have another scale: mean {mean[worst]:.4g} and deviation "
        f"{size[worst]:.4g} in training, {now[0][worst]:.4g} and {now[1][worst]:.4g} in validation"
    )


def _spread_out(values: np.ndarray) -> np.ndarray:
    """Columns that are not nearly always one value: a rare one's scale is that of a few rows."""
    return (values != np.median(values, axis=0)).mean(axis=0) >= SPREAD_OUT


def _scale_and_shift(
    mean: np.ndarray, size: np.ndarray, of_mean: np.ndarray, of_size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the ratio of deviations, and difference of means in deviations; 0 where a column is constant."""
    both = (size > 0) & (of_size > 0)
    ratio = np.where(both, np.log(np.where(both, size, 1) / np.where(both, of_size, 1)), 0.0)
    shift = np.where(both, (mean - of_mean) / np.where(both, np.maximum(of_size, size), 1), 0.0)
    return ratio, shift


def _other_missing(sides: Sides) -> str:
    """A value that stands for missing in one of them alone, while the other has one of its own. No value is told."""
    for column in range(sides.training.shape[1]):
        here, there = sides.training[:, column], sides.held_out[:, column]
        a, b = _atom(here, there), _atom(there, here)
        if a is not None and b is not None and 0.25 < a[1] / b[1] < 4:
            return f"column {column}: {a[1]:.0%} of training are one value, and {b[1]:.0%} of validation another"
        # Far outside of all that the other has: a sentinel such as -999 that the other replaced.
        if b is not None and not (here.min() - 3 * here.std() <= b[0] <= here.max() + 3 * here.std()):
            return f"column {column}: {b[1]:.0%} of validation are one value, far outside of training"
    return ""


def _atom(values: np.ndarray, other: np.ndarray) -> tuple[float, float] | None:
    """The most frequent value and its share, if the other nearly never has it and is not made of atoms itself."""
    kinds, counts = np.unique(values, return_counts=True)
    share = counts.max() / len(values)
    if len(kinds) < 20 or share < ATOM or float(np.median(counts)) > 0.1 * counts.max():
        return None
    value = float(kinds[counts.argmax()])
    return (value, float(share)) if float((other == value).mean()) < NO_ATOM else None


CHECKS: tuple[Check[Any], ...] = (check_of("inputs.same_preprocessing", same_preprocessing),)


BLOCKS = 6
# Of the columns that are unlike; how unlike, in the blocks' own spread, and how like in their new place.
MOST_OF, UNLIKE, LIKE = 0.8, 4.0, 2.0
CODES_DISTANCE = 0.2
# Mean images' correlation, taken from 1: less is a mean image without a direction.
TURNED = 0.02


@dataclass(frozen=True)
class Sides:
    """Columns of one input, (rows, columns) each, and the training's blocks."""

    training: np.ndarray
    held_out: np.ndarray

    @property
    def blocks(self) -> list[np.ndarray]:
        return [block for block in np.array_split(self.training, BLOCKS) if len(block)]


def other_order(sides: Sides) -> str:
    """Whether other columns of the training match the validation's far better than those of the same place."""
    columns = sides.training.shape[1]
    if columns < 2:
        return ""
    whole, other = _signature(sides.training), _signature(sides.held_out)
    # How far a column's own blocks lie from it, feature by feature: drift and chance together.
    spread = np.sqrt(np.mean([np.square(_signature(b) - whole) for b in sides.blocks], axis=0))
    spread = np.maximum(spread, 1e-3 * (np.abs(whole).max() + 1e-12))
    cost = np.sqrt(np.square((other[None] - whole[:, None]) / spread[:, None]).mean(axis=2))
    own = cost.diagonal().copy()
    # Columns that are alike must not change places for nothing.
    np.fill_diagonal(cost, np.where(own < LIKE, 0.0, own))
    matched = linear_sum_assignment(np.minimum(cost, 100.0))[1]
    unlike = np.flatnonzero(own > UNLIKE)
    clear = [int(a) for a in unlike if matched[a] != a and cost[a, matched[a]] < LIKE]
    # They must have changed places among themselves: drift makes columns unlike, and seldom makes them each other.
    if len(clear) < 2 or len(clear) < MOST_OF * len(unlike) or {int(matched[a]) for a in clear} != set(clear):
        return ""
    shown = ", ".join(f"{a} at {matched[a]}" for a in clear[:4])
    return f"{len(clear)} of {columns} columns stand in another place: validation has training's column {shown}"


def _signature(values: np.ndarray) -> np.ndarray:
    """What tells columns apart: quantiles, (columns, features), in units that all columns share."""
    quantiles = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    return np.concatenate([quantiles, values.mean(axis=0)[None]]).T


def other_codes(sides: Sides) -> str:
    """Whether the categories' numbers mean something else: other shares, but the same shares in another order."""
    for column in range(sides.training.shape[1]):
        values, held = sides.training[:, column], sides.held_out[:, column]
        codes = np.unique(np.concatenate([values, held]))
        if not 3 <= len(codes) <= min(1000, len(values) // 5):
            continue
        here, there = _shares(values, codes), _shares(held, codes)
        usual = max(_between(_shares(block[:, column], codes), here) for block in sides.blocks)
        difference = _between(here, there)
        best = _between(np.sort(here), np.sort(there))
        if difference > CODES_DISTANCE + 1.5 * usual and best < difference / 3 and best < 0.1 + usual:
            return (
                f"column {column} has other codes: the shares of its {len(codes)} values differ by {difference:.2f}, "
                f"and by {best:.2f} in another order"
            )
    return ""


def _shares(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return np.bincount(np.searchsorted(codes, values), minlength=len(codes)) / len(values)


def _between(a: np.ndarray, b: np.ndarray) -> float:
    """Total variation: half of the summed differences of shares."""
    return float(abs(a - b).sum() / 2)


def turned_images(training: Tensor, held_out: Tensor) -> str:
    """Whether validation images are mirrored or turned: their mean image matches training's better that way."""
    if training.ndim < 4 or training.shape[-2] < 4 or training.shape[-1] < 4:
        return ""
    step = max(1, len(training) // 1000), max(1, len(held_out) // 1000)
    mean = training[:: step[0]].float().mean(dim=0)
    blocks = [block.float().mean(dim=0) for block in training[:: step[0]].chunk(BLOCKS)]
    other = held_out[:: step[1]].float().mean(dim=0)
    usual = min(_match(block, mean) for block in blocks)
    turns = {"mirrored": other.flip(-1), "upside down": other.flip(-2), "turned by 180°": other.flip(-1, -2)}
    if training.shape[-1] == training.shape[-2]:
        turns["transposed"] = other.transpose(-1, -2)
        turns["turned by 90°"] = torch.rot90(other, 1, (-2, -1))
        turns["turned by 270°"] = torch.rot90(other, 3, (-2, -1))
    best = max(turns, key=lambda name: _match(turns[name], mean))
    own, turned, usual = (1 - similarity for similarity in (_match(other, mean), _match(turns[best], mean), usual))
    if own > max(TURNED, 10 * usual) and turned < max(0.01, 3 * usual) and turned < 0.5 * own:
        return f"images are {best}: their mean image is {turned:.3f} from training's that way, and {own:.3f} as it is"
    return ""


def _match(a: Tensor, b: Tensor) -> float:
    """Correlation of two images, each channel about its own mean."""
    a, b = (image - image.mean(dim=(-2, -1), keepdim=True) for image in (a, b))
    return float((a * b).sum() / (a.norm() * b.norm()).clamp_min(1e-12))
