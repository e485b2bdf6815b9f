"""Some rows of the benchmark that a model is asked again, and what an answer to them differs from its first one.

The rows are a sample in which each is as likely as any other, spread over all groups in proportion to their rows. So a
mean over them is one over the benchmark, and its interval by whole groups holds what the sample leaves out of a group
as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.sampling import evenly_spread
from trainworthy.lifecycle.tasks.interval import group_codes, mean_estimate
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import share_estimate

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

Measure = Literal["flip_rate", "mean_absolute_change"]
# Answers differ by so much of their scale by rounding alone, where other rows are in the batch.
ROUNDING = 1e-6
UNMOVED = "no answer moves in any row"


def sampled(groups: pd.Series, most: int) -> np.ndarray:
    """Numbers of at most so many rows, ascending, of each group its share."""
    import numpy as np
    import pandas as pd

    codes = pd.factorize(groups)[0]
    mixed = np.random.default_rng(0).permutation(len(codes))
    by_group = mixed[np.argsort(codes[mixed], kind="stable")]
    return np.sort(by_group[evenly_spread(len(codes), most)])


def measure_of(kind: Kind) -> Measure | None:
    """What says how much an answer changed; None where a row's answer has many places."""
    if kind.has_decisions:
        return "flip_rate"
    return "mean_absolute_change" if len(kind.answer_shape) < 2 else None


def numbers_of(kind: Kind, labels: np.ndarray, statistics: np.ndarray) -> dict[str, np.ndarray]:
    """What is answered of each row, `(N,)`, by what it is said of: probabilities of claims, or the number itself."""
    errors = kind.errors(labels, statistics)
    if errors is not None:
        return {"answer": labels + errors}
    return {claim.name: claim.probability for claim in kind.claims(labels, statistics) if claim.decided is not None}


def claims_of(kind: Kind) -> tuple[str, ...]:
    """All that `numbers_of` knows of such a kind's answers."""
    import numpy as np

    labels = kind.sample_labels(8)
    answers = np.broadcast_to(kind.prior(labels), (len(labels), *kind.answer_shape))
    return tuple(numbers_of(kind, labels, answers))


@dataclass(frozen=True)
class InputProbe:
    """Rows `(N)` with features, their labels and groups, and a model's statistics of them as they are.

    `answer` gives its statistics of rows with the same labels, `decide` what statistics decide, `(N,)`, where that is
    declared. Raises EvaluationError for fewer than 8 groups.
    """

    kind: Kind
    rows: pd.DataFrame
    labels: np.ndarray
    groups: pd.Series
    weights: np.ndarray | None
    answer: Callable[[pd.DataFrame], np.ndarray]
    decide: Callable[[np.ndarray], np.ndarray] | None = None

    def part(self, rows: np.ndarray) -> InputProbe:
        """The same of some rows, by their places."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self, rows=self.rows.iloc[rows], labels=self.labels[rows], groups=self.groups.iloc[rows], weights=weights
        )

    def sample(self, most: int) -> InputProbe:
        """At most so many of the rows that count: those of weight 0 are in no figure, and make no group.

        All count where the weights are none, which is told where they are used.
        """
        import numpy as np

        counted = self if self._weights_problem or self.weights is None else self.part(np.flatnonzero(self.weights > 0))
        return counted.part(sampled(counted.groups, most))

    @cached_property
    def plain(self) -> np.ndarray:
        """Statistics of the rows as they are."""
        return self._checked(self.answer(self.rows))

    def again(self, values: pd.Series) -> np.ndarray:
        """Statistics with other values in the feature of that name. Raises EvaluationError where there are none."""
        try:
            statistics = self.answer(with_columns(self.rows, {str(values.name): values}))
        except MemoryError:
            raise
        # The use case's own code: whatever it raises is what a service would meet. Its words may hold values.
        except Exception as error:
            fix = "let to_tensors take such values, or let the contract refuse them"
            raise EvaluationError(f"model.py raised {type(error).__name__}", fix=fix) from error
        return self._checked(statistics)

    def loss_rises(self, statistics: np.ndarray) -> np.ndarray:
        """By how much the loss of each row is higher, `(N,)`; only of kinds whose loss is one of rows."""
        return self._loss(statistics) - self._plain_loss

    def moved(self, statistics: np.ndarray) -> Estimate | None:
        """The share of rows whose decision is another one, or the mean absolute change of the number."""
        if measure_of(self.kind) == "flip_rate":
            flipped = (self._decided(statistics) != self._plain_decided).any(axis=1)
            return self.share(flipped, unmoved=self.unmoved(statistics))
        if measure_of(self.kind) is None:
            return None
        return self.mean(abs(self.numbers(statistics)["answer"] - self.plain_numbers["answer"]))

    def unmoved(self, statistics: np.ndarray) -> bool:
        """Whether all rows have the answer that they have as they are, but for rounding: the change is not read."""
        return bool((abs(statistics - self.plain) <= ROUNDING * self.kind.answer_scale(self.plain)).all())

    def numbers(self, statistics: np.ndarray) -> dict[str, np.ndarray]:
        return numbers_of(self.kind, self.labels, statistics)

    @cached_property
    def plain_numbers(self) -> dict[str, np.ndarray]:
        return self.numbers(self.plain)

    def mean(self, values: np.ndarray) -> Estimate:
        return mean_estimate(values, self.groups, self.checked_weights)

    def share(self, so: np.ndarray, *, unmoved: bool) -> Estimate:
        """The share of rows `(N,)` that are so, by what few rows tell of it (few_rows.py).

        0 for certain where answers are unmoved: no row can be so.
        """
        events = so.astype("float64")
        mean = self.mean(events)
        if unmoved:
            return Estimate(
                value=0.0, low=0.0, high=0.0, standard_error=0.0, groups=mean.groups, method="unmoved", made=UNMOVED
            )
        return share_estimate(mean, events, group_codes(self.groups, len(events)), self.checked_weights)

    @property
    def checked_weights(self) -> np.ndarray | None:
        """The weights. Raises EvaluationError where they are none."""
        if self._weights_problem:
            fix = "fill the column benchmark.weight with numbers from 0 on"
            raise EvaluationError(self._weights_problem, fix=fix)
        return self.weights

    @cached_property
    def _weights_problem(self) -> str:
        """What is wrong with the weights; empty where nothing is."""
        import numpy as np

        weights = self.weights
        if weights is None or (np.isfinite(weights).all() and weights.min() >= 0 and weights.max() > 0):
            return ""
        return "the rows' weights are no finite numbers from 0 on, or only zeros"

    def _checked(self, statistics: np.ndarray) -> np.ndarray:
        return self.kind.checked_statistics(self.labels, statistics)[1]

    def _loss(self, statistics: np.ndarray) -> np.ndarray:
        loss = self.kind.metrics[self.kind.loss].rows
        assert loss is not None
        return loss(self.labels, statistics)

    @cached_property
    def _plain_loss(self) -> np.ndarray:
        return self._loss(self.plain)

    @cached_property
    def _plain_decided(self) -> np.ndarray:
        return self._decided(self.plain)

    def _decided(self, statistics: np.ndarray) -> np.ndarray:
        """What is decided of each row and claim, (N, claims)."""
        import numpy as np

        if self.decide is not None:
            return self.decide(statistics)[:, None]
        claims = self.kind.claims(self.labels, statistics)
        return np.stack([claim.decided for claim in claims if claim.decided is not None], axis=1)
