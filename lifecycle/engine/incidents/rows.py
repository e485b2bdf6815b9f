"""Which rows of a batch do it, or carry the most: found by training on parts of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from trainworthy.lifecycle.engine.incidents.step import Step, alone
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.protocol.results import GuiltyRow

# Rows that are told of, and rows whose gradient is taken alone, those of the largest losses first.
_ROWS, _ALONE = 5, 128
# A part of a batch is a forward and a backward pass; a few guilty rows among thousands need some tens of them.
MOST_TRIES = 256
# Rows that are tried alone first: if all of these do it, it is not the rows.
_SCOUTS = 4


@dataclass
class Search:
    """Bisects a batch. `is_bad` tells whether these rows, by their place in the batch, do it on their own."""

    is_bad: Callable[[Sequence[int]], bool]
    alone: list[int] = field(default_factory=list)
    together: list[Sequence[int]] = field(default_factory=list)
    tries: int = 0

    def run(self, count: int) -> str:
        """Search the whole batch; a sentence on what was found."""
        scouts = sorted({place * (count - 1) // max(_SCOUTS - 1, 1) for place in range(_SCOUTS)})
        if count > _SCOUTS and all(self._tried([place]) for place in scouts):
            return f"each of {len(scouts)} rows that were tried alone does it: look at weights and model, not at rows"
        if not self._search(range(count)):
            return "parts of the batch do not do it; only the whole batch with its own random numbers does"
        if self.tries >= MOST_TRIES:
            return (
                f"{len(self.alone)} rows do it alone; the search ended after {self.tries} parts, and there may be more"
            )
        if self.alone:
            return f"{len(self.alone)} of {count} rows do it alone; found with {self.tries} parts of the batch"
        return f"no row does it alone; these {len(self.together[0])} do together"

    def _search(self, part: Sequence[int]) -> bool:
        if self.tries >= MOST_TRIES or not self._tried(part):
            return False
        if len(part) == 1:
            self.alone.append(part[0])
            return True
        middle = len(part) // 2
        left, right = self._search(part[:middle]), self._search(part[middle:])
        if not left and not right and self.tries < MOST_TRIES:
            self.together.append(part)
        return True

    def _tried(self, part: Sequence[int]) -> bool:
        self.tries += 1
        return self.is_bad(part)


def guilty_rows(step: Step, *, sensitive: bool) -> tuple[tuple[GuiltyRow, ...], str]:
    """The rows that stand out, and how they were found."""
    keys, numbers = step.scene.keys(step.number), step.scene.rows(step.number)
    places, evidence = _guilty(step) if step.not_finite else _heaviest(step)
    rows = tuple(
        GuiltyRow(
            row=numbers[place],
            key=keys[place] if place < len(keys) else {},
            told="why is not told, since a feature is sensitive" if sensitive else why,
        )
        for place, why in list(places.items())[:_ROWS]
    )
    return rows, evidence


def _guilty(step: Step) -> tuple[dict[int, str], str]:
    """Rows of a batch whose loss or gradient is not finite, by place, with what is odd in their inputs."""
    bad = torch.nonzero(~torch.isfinite(step.losses)).flatten().tolist()
    batch = step.data.take(step.rows)
    if 0 < len(bad) < len(step.losses):
        evidence = f"{len(bad)} of {len(step.losses)} rows have a loss that is not finite"
        return {place: bad_inputs(batch, place) or "its loss is not finite" for place in bad}, evidence
    search = Search(alone(step).is_bad)
    evidence = search.run(len(step.losses))
    places = search.alone or [place for part in search.together[:1] for place in part]
    return {place: bad_inputs(batch, place) or "it does it with inputs that are finite" for place in places}, evidence


def bad_inputs(batch: TrainData, place: int) -> str:
    """Which inputs of a row, by its place in the batch, hold numbers that are not finite."""
    bad = {
        name: int((~torch.isfinite(tensor[place])).sum())
        for name, tensor in batch.inputs.items()
        if tensor.is_floating_point()
    }
    return ", ".join(f"input {name} holds {count} numbers that are not finite" for name, count in bad.items() if count)


def _heaviest(step: Step) -> tuple[dict[int, str], str]:
    """Rows that carry the most of a finite step's loss and gradient."""
    losses = step.losses.double()
    order = losses.argsort(descending=True).tolist()[:_ALONE]
    part = alone(step)
    norms = {place: part.passed([place])[1] for place in order}
    step.put_back()
    total, all_norms = float(losses.sum()), sum(norms.values())
    heavy = sorted(norms, key=lambda place: norms[place], reverse=True)[:_ROWS]
    shares = {
        place: f"{_share(float(losses[place]), total)} of the batch's loss, "
        f"{_share(norms[place], all_norms)} of the rows' gradient norms"
        for place in heavy
    }
    times = norms[heavy[0]] * len(order) / all_norms if all_norms else 1.0
    return shares, f"{len(order)} were taken alone; the largest gradient has {times:.1f} times an equal share"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "none"
