"""Has something been learned? A statistic of answers that survives a shifting base rate.

The loss on validation rows, against the loss when predictions are permuted within their group (for example a day). A
model that knows only the base rate loses nothing by the permutation, however wrong the base rate is; a comparison with
the label prior stops healthy networks in months whose base rate moved.

A short pilot ranks well long before it is as sure as it may be, and a regression of few rows is surer than it may be:
the rise counts both. So the answers of all are first stretched (Kind.stretched: Platt scaling of probabilities, a line
through numbers), each half of the groups by a fit on the other half; an order that would have to be turned round counts
as none.

Of numbers with a heavy tail a few rows would have nearly all of the squared error, so that no interval could tell:
labels and answers are brought to a scale first on which they do not (Kind.tamed). Rows of a group whose labels are all
alike, as of a recording, are permuted with those of other such groups: among themselves nothing could be seen. Where
groups have no order in time, as customers or places, no base rate drifts from one to the next, and what tells them
apart was learned: rows are permuted among all.

Where few inputs tell nearly all, any direction shows something once it is stretched: a network of shuffled labels that
leans the right way by chance had a fifth to a half of the rise of a linear model on numbers of three inputs, more with
a heavy tail (5 of 20 such trainings passed). On the rows that it learned from it then shows next to nothing, and a
healthy one as much as elsewhere; so both are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import t

from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, mean_estimate

PERMUTATIONS, LEAST_PERMUTED = 5, 10
# The code of all groups that are small, or whose labels are alike.
ALIKE = -1


@dataclass(frozen=True)
class Scored:
    """Of each row, `(N,)`: the loss of the stretched answer, and its rise by permutation."""

    losses: np.ndarray
    rises: np.ndarray


@dataclass(frozen=True)
class Judge:
    """What is needed of validation rows to score any answers to them; labels `(N, ...)`, groups `(N,)`.

    `within`: rows are permuted within their groups, and not among all.
    """

    kind: Kind
    labels: np.ndarray
    groups: np.ndarray
    seed: int
    within: bool = True

    @cached_property
    def tamed_labels(self) -> np.ndarray:
        """The labels on the scale of all losses here."""
        return self.kind.tamed(self.labels)(self.labels)

    @cached_property
    def permuted_groups(self) -> np.ndarray:
        """Groups within which rows are permuted, `(N,)`, as of groups_to_permute."""
        return groups_to_permute(self.groups, self.labels, within=self.within)

    @property
    def within_groups(self) -> bool:
        return mostly_within(self.permuted_groups)

    def scored(self, answers: np.ndarray) -> Scored:
        """Of answers `(N, ...)`."""
        labels, answers = self.tamed_labels, self.kind.tamed(self.labels)(answers)
        answers = stretched(self.kind, labels, answers, self.groups)
        rises = permutation_rises(self.kind, labels, answers, self.permuted_groups, self.seed)
        return Scored(self.kind.row_loss(labels, answers), rises)

    def mean(self, values: np.ndarray) -> Estimate:
        """Of a value of each row, by group."""
        return mean_estimate(values, self.groups)

    @property
    def entropy(self) -> float:
        """The loss of these rows' own best constant answer: what there is to explain."""
        labels = self.tamed_labels
        return float(self.kind.row_loss(labels, constant_answers(self.kind.prior(labels), len(labels))).mean())

    def over_fits(self, rises: Sequence[np.ndarray]) -> Estimate:
        """The mean rise of several fits, each `(N,)`: its interval has the luck of few rows to fit in it as well.

        With ten rows, one fit of healthy rows may find nothing; a second draw of such rows then finds something.
        """
        over_rows = self.mean(np.mean(rises, axis=0))
        error = float(np.hypot(over_rows.standard_error, np.std([rise.mean() for rise in rises], ddof=1)))
        half = float(t.ppf(0.975, len(rises) - 1)) * error
        bounds = {"low": over_rows.value - half, "high": over_rows.value + half, "standard_error": error}
        return over_rows.model_copy(update=bounds)


def own_rise(judge: Judge, answers: np.ndarray) -> Estimate | None:
    """Rise of the loss on rows that the network learned from, as a share of what a constant answer loses there.

    None in fewer groups than an interval needs.
    """
    if len(np.unique(judge.groups)) < MINIMUM_GROUPS or judge.kind.one_valued(judge.labels):
        return None
    return judge.mean(judge.scored(answers).rises / judge.entropy)


def constant_answers(answer: np.ndarray, rows: int) -> np.ndarray:
    """One answer for so many rows, `(rows, *answer_shape)`."""
    return np.broadcast_to(answer, (rows, *answer.shape)).copy()


def stretched(kind: Kind, labels: np.ndarray, answers: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Answers `(N, ...)` as sure as they may be: each half of the groups stretched by a fit on the other.

    Where the fit would turn the order round, or can't be made, the answer is the best constant of the other half.
    """
    result = np.empty(answers.shape)
    for scored in halves(groups):
        stretch = kind.stretched(labels[~scored], answers[~scored])
        if stretch is None:
            result[scored] = kind.prior(labels[~scored])
        else:
            result[scored] = stretch(answers[scored])
    return result


def halves(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks `(N,)` of every other group, and of the rest."""
    _, codes = np.unique(groups, return_inverse=True)
    return codes % 2 == 0, codes % 2 == 1


def permutation_rises(kind: Kind, labels: np.ndarray, answers: np.ndarray, groups: np.ndarray, seed: int) -> np.ndarray:
    """Rise of each row's loss, `(N,)`, averaged over PERMUTATIONS within groups, the same ones for all answers."""
    rises, own = np.zeros(len(labels)), kind.row_loss(labels, answers)
    for permuted in permutations_within(groups, seed):
        rises += kind.row_loss(labels, answers[permuted]) - own
    return rises / PERMUTATIONS


def groups_to_permute(groups: np.ndarray, labels: np.ndarray, *, within: bool) -> np.ndarray:
    """Codes of what rows are permuted in, `(N,)`: their groups, of which small ones and those of one label are one.

    Not `within`, one of all, as where groups have no order in time (Rows.split_by_time).
    """
    return with_alike_together(groups, labels) if within else np.full(len(groups), ALIKE)


def mostly_within(permuted: np.ndarray) -> bool:
    """Whether most rows are permuted among those of their own group."""
    return bool((permuted != ALIKE).mean() > 0.5)


def with_alike_together(groups: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Codes of the groups, `(N,)`, where small ones and those whose labels `(N,)` are all alike are one, ALIKE."""
    _, codes = np.unique(groups, return_inverse=True)
    codes = np.where(np.bincount(codes)[codes] < LEAST_PERMUTED, len(codes), codes)
    if labels.ndim != 1 or labels.dtype == object:
        return np.where(codes == len(codes), ALIKE, codes)
    least, most = np.full(codes.max() + 1, np.inf), np.full(codes.max() + 1, -np.inf)
    np.minimum.at(least, codes, labels)
    np.maximum.at(most, codes, labels)
    return np.where((least == most)[codes] | (codes == len(codes)), ALIKE, codes)


def permutations_within(groups: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """PERMUTATIONS orders of the rows `(N,)` in which each row stays in its group.

    Groups of fewer than LEAST_PERMUTED rows are permuted together: in a group of one row nothing moves.
    """
    generator = np.random.default_rng(seed)
    _, codes = np.unique(groups, return_inverse=True)
    sizes = np.bincount(codes)
    codes = np.where(sizes[codes] < LEAST_PERMUTED, len(sizes), codes)
    in_place = np.argsort(codes, kind="stable")
    for _ in range(PERMUTATIONS):
        permuted = np.empty(len(groups), dtype=np.int64)
        permuted[in_place] = np.lexsort((generator.random(len(groups)), codes))
        yield permuted
