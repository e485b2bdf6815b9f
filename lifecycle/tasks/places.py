"""What kinds share whose answer of a row is a probability of each class at many places, such as pixels or bytes.

Answers are `(N, …places…, classes)`. Statistics of a row end with those of its calibration: of each of CALIBRATION_BINS
bins of the answered class's probability the places, those that are right, and the sum of the probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.figures import ReliabilityBin
from trainworthy.lifecycle.tasks.input_checks import same_length
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import TaskMetric, group_sums, ratio
from trainworthy.lifecycle.tasks.probabilities import logarithms
from trainworthy.lifecycle.tasks.usual import Usual

if TYPE_CHECKING:
    import numpy as np

    from trainworthy.lifecycle.spec.training import TrainingSpec

# They are fixed, so that they can be summed over rows.
CALIBRATION_BINS = 10
CALIBRATION_NAMES = tuple(f"bin_{what}[{at}]" for what in ("rows", "right", "sure") for at in range(CALIBRATION_BINS))
UNSCORED = "find the rows from which they come; a missing value is never scored"


class Places(Usual):
    """A kind whose answers have many places."""

    # A row has a class at each place, and none of its own.
    row_classes = 0
    # Why settings that weigh rows by their class do not fit, and what to do.
    why_unfit: str

    def checked_statistics(self: Kind, labels: Any, statistics: Any) -> tuple[np.ndarray, np.ndarray]:
        """Labels, and finite statistics of as many rows."""
        import numpy as np

        labels, statistics = self.checked_labels(labels), np.asarray(statistics, dtype=np.float64)
        same_length(labels, statistics)
        wrong = ~np.isfinite(statistics).all(axis=1)
        if wrong.any():
            problem = f"{int(wrong.sum())} of {len(wrong)} rows have answers that are not finite"
            raise EvaluationError(problem, fix=UNSCORED)
        return labels, statistics

    def calibrated(self, answers: Any, state: Mapping[str, Any]) -> np.ndarray:
        """Of the judged places or of all, in the type of the answers: a slope of logarithms, and intercepts if any."""
        import numpy as np

        answers = np.asarray(answers)
        if not len(answers):
            return answers
        scaled = logarithms(answers)
        scaled *= answers.dtype.type(state["slope"])
        if "intercepts" in state:
            scaled += np.asarray(state["intercepts"], dtype=answers.dtype)
        scaled -= scaled.max(axis=-1, keepdims=True)
        np.exp(scaled, out=scaled)
        scaled /= scaled.sum(axis=-1, keepdims=True)
        return scaled

    def stretched(self: Kind, labels: np.ndarray, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
        """The calibration, if its slope is above 0."""
        if self.one_valued(labels):
            return None
        state = self.fit_calibration(labels, answers)
        return (lambda other_answers: self.calibrated(other_answers, state)) if state["slope"] > 0 else None

    def answer_scale(self, answers: np.ndarray) -> np.ndarray:
        """1 for probabilities; of statistics their size, since one pixel of thousands is no other answer."""
        import numpy as np

        return np.maximum(1.0, np.abs(answers))

    def reliability(
        self, labels: np.ndarray, answers: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[ReliabilityBin, ...]:
        """Mean probability of the answered class of a place against the share that has it; `answers` are statistics."""
        import numpy as np

        sums = np.average(answers[:, -3 * CALIBRATION_BINS :], axis=0, weights=weights) * len(answers)
        places, right, sure = sums.reshape(3, CALIBRATION_BINS)
        return tuple(
            ReliabilityBin(predicted=float(sure[i] / n), observed=float(right[i] / n), rows=max(1, round(n)))
            for i, n in enumerate(places)
            if n > 0
        )

    def unfit_settings(self, training: TrainingSpec) -> tuple[str, ...]:
        """What weighs rows by their class."""
        declared = {
            "class_weights": training.class_weights not in (None, "none"),
            "oversampling": training.oversampling is not None,
            "focal_gamma": training.focal_gamma is not None,
        }
        why = f"weighs rows by their class, {self.why_unfit}"
        return tuple(f"training.{name} {why}" for name, given in declared.items() if given)


def calibration_statistics(sure: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
    """CALIBRATION_NAMES of one row, of each place's probability of the answered class, and whether it is right."""
    import numpy as np

    bins = np.minimum((sure * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    return [np.bincount(bins, weights=some, minlength=CALIBRATION_BINS) for some in (None, right, sure)]


def sums_of(first: int, last: int | None = None) -> Callable[..., np.ndarray]:
    """What gives the sums over each group of the statistics from `first` on, as TaskMetric has it."""
    return partial(_sums, first=first, last=last)


def _sums(
    labels: np.ndarray, statistics: np.ndarray, codes: np.ndarray, weights: np.ndarray | None, first: int,
    last: int | None,
) -> np.ndarray:  # fmt: skip
    return group_sums(list(statistics[:, first:last].T), codes, weights)


def _off(sums: np.ndarray) -> np.ndarray:
    """Mean distance of probability and share that is right, over bins."""
    import numpy as np

    places, right, sure = (sums[..., at * CALIBRATION_BINS : (at + 1) * CALIBRATION_BINS] for at in range(3))
    return ratio(np.abs(sure - right).sum(axis=-1), places.sum(axis=-1))


CALIBRATION_ERROR = TaskMetric(
    "calibration_error", False, sums=sums_of(-3 * CALIBRATION_BINS), of_sums=_off, low=0.0, high=1.0
)
