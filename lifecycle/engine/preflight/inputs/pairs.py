"""Are inputs and targets that belong together point by point changed together?

The rows are replaced by markers: an input with one bright block, and a target with the same block of another label.
Wherever augmentation takes the block of the input, it has to take that of the target. Colours may change as they will,
since only the place of the block counts. Sequences of whole numbers carry their positions instead.

Does augmentation mix rows, and their targets with them? Rows are raised for that: what rises elsewhere came from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.inputs.augmentation import augmented
from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import rows_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome

FEWEST_POINTS, FEWEST_FOLLOWED = 8, 8
# Of the rows in which both blocks can be seen; and how far apart their centres may be, in widths of the block.
MOST_MISMATCHED, WIDTHS = 0.1, 0.5
# A larger spread than so many times the block's own is not one block: mixed rows, or erased parts.
SPREAD = 2.0
ROWS, STEPS = 16, 6
# More of another row than of its own is another row; less than a fiftieth is the batch's mean or its extremes.
OWN_SHARE, SOME_SHARE = 0.5, 0.02


@dataclass(frozen=True)
class Pair:
    """An input and where its points lie: sizes of the dimensions that it shares with the targets, and the first."""

    name: str
    shape: tuple[int, ...]
    input_axis: int
    target_axis: int


def pairs_together(subject: Subject) -> Outcome:
    """The same map for both, and no labels between labels."""
    if subject.recipe.augment is None:
        return Outcome("not_applicable", "there is no augmentation")
    mixed = mixed_without_targets(subject)
    if mixed:
        return Outcome("fail", mixed, True, False, cause="rows are mixed with others, and their targets are not",
                       fix="mix the targets with the same shares as the inputs")  # fmt: skip
    handed_on = _of_other_rows(subject)
    if handed_on:
        return Outcome("fail", handed_on, True, False, cause="targets that are rolled, sorted or shuffled alone",
                       fix="index inputs and targets with the same order of rows")  # fmt: skip
    pair = _pair(subject)
    if pair is None:
        return Outcome("not_applicable", "no input shares the targets' points")
    if not _keeps_targets(subject):
        return Outcome("not_applicable", "augmentation makes the targets anew, whatever they were")
    if not subject.training.inputs[pair.name].is_floating_point():
        return sequences_together(subject, pair.name)
    return _marked(subject, pair)


def _pair(subject: Subject) -> Pair | None:
    """The input whose trailing (or inner, with channels last) dimensions are the targets'; images before tables."""
    targets = subject.training.targets
    shapes = [(1, tuple(targets.shape[1:]))]
    if targets.ndim > 2:
        shapes.append((2, tuple(targets.shape[2:])))
    for target_axis, shape in shapes:
        points = 1
        for size in shape:
            points *= size
        if not shape or points < FEWEST_POINTS or (points == max(shape) and len(shape) > 1):
            continue
        for name, tensor in sorted(
            subject.training.inputs.items(), key=lambda name_and_tensor: -name_and_tensor[1].ndim
        ):
            for axis in range(1, tensor.ndim - len(shape) + 1):
                if tuple(tensor.shape[axis : axis + len(shape)]) == shape and _covers(tensor, axis, shape):
                    return Pair(name, shape, axis, target_axis)
    return None


def _covers(tensor: Tensor, axis: int, shape: tuple[int, ...]) -> bool:
    """Points first or last: (N, ...), (N, C, ...) or (N, ..., C); a float table has no points but its columns."""
    extra_axes = tensor.ndim - 1 - len(shape)
    return extra_axes <= 1 and axis in (1, 1 + extra_axes)


def _of_other_rows(subject: Subject) -> str:
    """What is wrong if rows come out whole, inputs and targets each the same ones, and in another order."""
    rows = spread_rows(subject.training, ROWS)
    inputs, targets = rows_of(subject.training, rows, subject.device)
    before, after = _of_each_row(inputs, targets), _of_each_row(*augmented(subject, dict(inputs), targets.clone(), 0))
    sides = [[sorted(pair[side] for pair in pairs) for side in (0, 1)] for pairs in (before, after)]
    unmatched = sum(pair not in before for pair in after)
    if sides[0] != sides[1] or not unmatched:
        return ""
    return (
        f"{unmatched} of {len(after)} rows come out of augment with the target of another row, and are as they were "
        "else"
    )


def _of_each_row(inputs: Mapping[str, Tensor], targets: Tensor) -> list[tuple[bytes, bytes]]:
    """The bytes of each row's inputs, and of its target."""
    parts = [tensor.detach().cpu().contiguous().numpy() for tensor in inputs.values()]
    target_values = targets.detach().cpu().contiguous().numpy()
    return [
        (b"".join(part[row].tobytes() for part in parts), target_values[row].tobytes())
        for row in range(len(target_values))
    ]


def _keeps_targets(subject: Subject) -> bool:
    """Whether the targets that augmentation gives are made of those that it was given."""
    rows, results = spread_rows(subject.training, ROWS), []
    for other in (False, True):
        inputs, targets = rows_of(subject.training, rows, subject.device)
        given = other_targets(targets) if other else targets
        results.append(augmented(subject, inputs, given, 0)[1])
    return not torch.equal(*results)


def _marked(subject: Subject, pair: Pair) -> Outcome:
    data, width = subject.training, [max(2, size // 5) for size in pair.shape]
    background, bright = _levels(data.inputs[pair.name])
    low, high = _labels(data.targets)
    if low is None or high is None:
        return Outcome("insufficient", "the targets hold a single label, so that no block can be marked in them")
    mismatched = followed = between = 0
    example = ""
    for step in range(STEPS):
        rows = spread_rows(data, ROWS)
        inputs, targets = rows_of(data, rows, subject.device)
        where = torch.zeros(len(rows), *pair.shape, dtype=torch.bool)
        _mark(where, width, step)
        where = where.to(targets.device)
        image = _expanded(where, inputs[pair.name], pair.input_axis)
        inputs[pair.name] = image.to(inputs[pair.name].dtype) * (bright - background) + background
        target_mask = _expanded(where, targets, pair.target_axis)
        targets = torch.where(target_mask, torch.full_like(targets, high), torch.full_like(targets, low))
        changed, changed_targets = augmented(subject, inputs, targets, step)
        between += _labels_between(data.targets, changed_targets, float(low), float(high))
        given = _places(changed[pair.name], pair, pair.input_axis, width)
        taken = _places(changed_targets, pair, pair.target_axis, width)
        for row, (centre, other) in enumerate(zip(given, taken, strict=True)):
            if centre is None or other is None:
                continue
            followed += 1
            far = max(abs(a - b) / w for a, b, w in zip(centre, other, width, strict=True))
            if far > WIDTHS:
                mismatched += 1
                example = example or (
                    f"in step {step} row {row} the input's block lies at {_shown(centre)}, "
                    f"the target's at {_shown(other)}"
                )
    if followed < FEWEST_FOLLOWED:
        return Outcome("insufficient", f"the markers could be followed in {followed} of {ROWS * STEPS} rows only")
    if mismatched > MOST_MISMATCHED * followed:
        return Outcome(
            "fail",
            f"{mismatched} of {followed} targets are not where their input is: {example}",
            mismatched / followed,
            MOST_MISMATCHED,
        )
    if between and not mixes_rows(subject, pair.name):
        fix = "resize and turn masks with nearest, never with bilinear"
        evidence = f"{between} targets have values between two labels"
        return Outcome("fail", evidence, between, 0, fix=fix, cause="targets that are interpolated as images are")
    return Outcome(
        "pass", f"{followed} marked rows: input and target are moved alike", mismatched / followed, MOST_MISMATCHED
    )


def _levels(values: Tensor) -> tuple[float, float]:
    """A background and a bright value that the input really has; zero is the background if it can be.

    What is cut in from outside is mostly filled with zeros, and so can't be seen beside a background of zero.
    """
    flat = values[:64].float().flatten()
    flat = flat[flat.isfinite()][:100_000]
    low, high = (float(v) for v in flat.quantile(flat.new_tensor([0.02, 0.98])))
    if high - low < 1e-6:
        low, high = float(flat.min()), float(flat.max()) + 1.0
    background = min(max(0.0, low), high)
    far = high if high - background >= background - low else low
    return background, far


def _labels(targets: Tensor) -> tuple[float | None, float | None]:
    """Two labels that lie far apart, without those that a loss ignores (negative beside class numbers)."""
    if targets.dtype == torch.bool:
        return 0.0, 1.0
    values = targets[:256].flatten().float()
    values = values[values.isfinite()]
    if bool((values == values.round()).all()) and bool((values > 0).any()):
        values = values[values >= 0]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    return (low, high) if high > low else (None, None)


def _mark(where: Tensor, width: list[int], step: int) -> None:
    """One block a row, at places that no mirror, turn or shift leaves where they are."""
    generator = torch.Generator().manual_seed(step)
    for row in range(len(where)):
        starts = [int(torch.randint(0, size - w + 1, (1,), generator=generator)) for size, w in
                  zip(where.shape[1:], width, strict=True)]  # fmt: skip
        where[(row, *(slice(s, s + w) for s, w in zip(starts, width, strict=True)))] = True


def _expanded(where: Tensor, like: Tensor, axis: int) -> Tensor:
    """The marks in the shape of a tensor whose points begin at `axis`: channels before or behind."""
    for _ in range(axis - 1):
        where = where.unsqueeze(1)
    while where.ndim < like.ndim:
        where = where.unsqueeze(-1)
    return where.expand(like.shape)


def _places(changed: Tensor, pair: Pair, axis: int, width: list[int]) -> list[tuple[float, ...] | None]:
    """The centre of each row's block by its points, None if it left the row or is no single block."""
    points = len(pair.shape)
    values = changed.detach().float().nan_to_num(0.0, 0.0, 0.0)
    if values.ndim > 1 + points:
        values = values.movedim(tuple(range(axis, axis + points)), tuple(range(1, 1 + points)))
        values = values.flatten(1 + points).mean(dim=-1)
    flat = values.flatten(1)
    away = (flat - flat.median(dim=1, keepdim=True).values).abs()
    away = torch.where(away > 0.5 * away.amax(dim=1, keepdim=True), away, away.new_zeros(()))
    away = away.reshape(values.shape)
    centres: list[tuple[float, ...] | None] = []
    for row in away:
        weight = float(row.sum())
        centre, wide = [], []
        for dimension, size in enumerate(row.shape):
            other_axes = tuple(d for d in range(points) if d != dimension)
            share = (row.sum(dim=other_axes) if other_axes else row) / max(weight, 1e-12)
            place = torch.arange(size, device=row.device, dtype=torch.float32)
            middle = float((share * place).sum())
            centre.append(middle)
            wide.append(float((share * (place - middle).square()).sum().clamp_min(0).sqrt()))
        # A block of width w has a standard deviation of w / sqrt(12); a zoom makes it larger.
        single = all(deviation <= SPREAD * max(width) / 12**0.5 + 0.5 for deviation in wide)
        centres.append(tuple(centre) if weight > 0 and single else None)
    return centres


def _shown(place: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{coordinate:.0f}" for coordinate in place) + ")"


def _labels_between(before: Tensor, changed: Tensor, low: float, high: float) -> int:
    """Values strictly between the two labels, if the targets are labels at all; what fills a border lies outside."""
    if before.dtype != torch.bool and not bool((before == before.round()).all() | (before.unique().numel() <= 8)):
        return 0
    if changed.dtype == torch.bool:
        return 0
    values, edge = changed.float(), 1e-4 * (high - low)
    return int(((values > low + edge) & (values < high - edge) & (values != 0)).sum())


CHECKS: tuple[Check[Any], ...] = (check_of("inputs.augmentation_pairs", pairs_together),)


# Of the rows that may be off, and of a row's positions that must fit: tokens may be replaced by others as noise.
MOST_SHIFTED, POSITIONS = 0.1, 0.5


def sequences_together(subject: Subject, name: str) -> Outcome:
    """Positions as tokens: wherever a token goes, its target has to go along."""
    data = subject.training
    tokens, targets = data.inputs[name], data.targets
    offset = _offset(tokens, targets)
    if offset is None:
        return Outcome("not_applicable", "the targets are no shifted inputs, so that no position can be followed")
    top = max(2, int(tokens.max()))
    wrong = followed = 0
    for step in range(STEPS):
        rows = spread_rows(data, ROWS)
        inputs, row_targets = rows_of(data, rows, subject.device)
        position = torch.arange(tokens.shape[1], device=row_targets.device).expand(len(rows), -1)
        inputs[name] = (position % top + 1).to(tokens.dtype)
        row_targets = ((position + offset) % top + 1).to(targets.dtype)
        changed, changed_targets = augmented(subject, inputs, row_targets, step)
        if changed[name].shape != changed_targets.shape:
            return Outcome("fail", f"in step {step} inputs have {tuple(changed[name].shape)}, targets "
                           f"{tuple(changed_targets.shape)}")  # fmt: skip
        valid = changed_targets > 0
        fits = (changed[name].long() - 1 + offset) % top == (changed_targets.long() - 1) % top
        followed += len(rows)
        share = (fits & valid).sum(dim=1) / valid.sum(dim=1).clamp_min(1)
        wrong += int((share < POSITIONS).sum())
    if wrong > MOST_SHIFTED * followed:
        evidence = f"{wrong} of {followed} rows: targets are no longer the inputs shifted by {offset}"
        return Outcome("fail", evidence, wrong / followed, MOST_SHIFTED)
    return Outcome("pass", f"targets stay the inputs shifted by {offset}", wrong / followed, MOST_SHIFTED)


def _offset(tokens: Tensor, targets: Tensor) -> int | None:
    """By how many positions targets are the inputs, read ahead; None if they are not."""
    if tokens.shape != targets.shape or tokens.ndim != 2:
        return None
    x, y = tokens[:256].long(), targets[:256].long()
    shares = {}
    for offset in (1, 0, 2, -1):
        size = x.shape[1] - abs(offset)
        a = x[:, max(0, offset) : max(0, offset) + size]
        b = y[:, max(0, -offset) : max(0, -offset) + size]
        labelled = b >= 0
        shares[offset] = float(((a == b) & labelled).sum() / labelled.sum().clamp_min(1))
    best = max(shares, key=lambda shift: shares[shift])
    return best if shares[best] > 0.8 else None


def mixed_without_targets(subject: Subject) -> str:
    """Rows whose inputs are mostly another row's, while their targets depend on no other row."""

    data, rows = subject.training, spread_rows(subject.training, ROWS)
    name = next((n for n, t in data.valued.items() if t.is_floating_point() and t.ndim > 1), None)
    if name is None or len(rows) < 2 or not (data.targets[rows.to(data.targets.device)].unique().numel() > 1):
        return ""
    for step in range(STEPS):
        moved = _moved_by_another(subject, rows, name, step)
        shares, targets_move = moved
        if float(shares.max()) > OWN_SHARE and not targets_move:
            row = int(shares.argmax())
            share = f"{float(shares.max()):.0%}"
            return f"in step {step} row {row} of {name} is made of other rows by {share}, and keeps its own target"
        if targets_move:
            return ""
    return ""


def _moved_by_another(subject: Subject, rows: Tensor, name: str, step: int) -> tuple[Tensor, bool]:
    """How much of each row of an input comes from other rows, and whether any target does.

    Half of the rows are raised by their deviation: what rises in the other half came from them.
    """
    inputs, targets = rows_of(subject.training, rows, subject.device)
    size = inputs[name].float().nan_to_num(0.0, 0.0, 0.0).std().clamp_min(1e-6).to(inputs[name].dtype)
    shares = torch.zeros(len(rows))
    moved = False
    generator = torch.Generator().manual_seed(step)
    raised = torch.rand(len(rows), generator=generator) < 0.5
    raised[0], raised[-1] = True, False
    up = raised.to(targets.device)
    results = []
    for change in (False, True):
        given = {key: tensor.clone() for key, tensor in inputs.items()}
        given_targets = targets.clone()
        if change:
            given[name][up] = given[name][up] + size
            # Each raised row gets another's target, so that only real labels are sent.
            given_targets[up] = other_targets(targets)[up]
        results.append(augmented(subject, given, given_targets, step))
    (before, targets_before), (after, targets_after) = results
    if before[name].shape != after[name].shape or len(before[name]) != len(rows):
        return shares, True
    rise = ((after[name] - before[name]).float().flatten(1).mean(dim=1) / size.float()).abs().cpu()
    shares = torch.where(raised, shares, rise)
    moved = bool((targets_before[~up] != targets_after[~up]).any())
    return shares, moved


def other_targets(targets: Tensor) -> Tensor:
    """Each row's target replaced by a different one that is there, as far as there is one."""
    flat = targets.reshape(len(targets), -1)
    low, high = flat[flat.float().sum(dim=1).argmin()], flat[flat.float().sum(dim=1).argmax()]
    is_low = (flat == low).all(dim=1, keepdim=True)
    return torch.where(is_low, high, low).reshape(targets.shape)


def mixes_rows(subject: Subject, name: str) -> bool:
    """Whether the augmentation mixes rows, so that soft labels are meant."""
    rows = spread_rows(subject.training, ROWS)
    return any(float(_moved_by_another(subject, rows, name, step)[0].max()) > SOME_SHARE for step in range(STEPS))
