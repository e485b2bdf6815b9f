"""Kind regression: the label is a number; the answer is a number, shape `(N,)`, or quantiles, `(N, quantiles)`.

A number is judged by its squared error, quantiles by their pinball loss (Koenker & Bassett 1978). Quantiles are
calibrated by a shift of each, so that on the calibration split as many labels lie below as declared (split conformal;
Romano, Patterson & Candès 2019, one side at a time).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.figures import ReliabilityBin
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.input_checks import same_length, vector
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, few_groups, joined_codes
from trainworthy.lifecycle.tasks.kind import COPY_OF_NUMBERS, Event
from trainworthy.lifecycle.tasks.metric import TaskMetric, group_sums, ratio
from trainworthy.lifecycle.tasks.probabilities import answers_by_bin
from trainworthy.lifecycle.tasks.usual import FewNumbers

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.spec.training import TrainingSpec
    from trainworthy.lifecycle.tasks.kind import Predictor
    from trainworthy.lifecycle.tasks.metric import RowFigure

# Parts of the label of equal mass, of which a sample takes its share each.
STRATA = 10
# Labels above these quantiles of the training rows are the events: the middle first, then the tails.
EVENT_QUANTILES = (0.5, 0.1, 0.9)
# A median is left out of so many parts at most.
MOST_LEFT_OUT = 50


class Regression(FewNumbers):
    """A label that is a number."""

    name = "regression"
    row_classes = 0
    classes: tuple[Any, ...] = ()
    copy = COPY_OF_NUMBERS
    per_class: tuple[str, ...] = ()

    def __init__(self, quantiles: tuple[float, ...] = ()) -> None:
        self.quantiles = quantiles

    @property
    def answer_names(self) -> tuple[str, ...]:
        return tuple(f"{level:g}" for level in self.quantiles) or ("",)

    @property
    def answers(self) -> str:
        return "quantiles" if self.quantiles else "numbers"

    @property
    def words(self) -> Words:
        return Words(
            prior="best constant answer",
            linear="ridge regression",
            constant=f"always answering the training rows' {'quantiles' if self.quantiles else 'mean'}",
            unit="",
            a_row=f"of {'pinball loss' if self.quantiles else 'squared error'} a row, large numbers tamed",
            predicted="mean answer",
            observed="mean label",
            familiar=(
                ("r2", "{share} of the labels' variance is explained"),
                ("mae", "off by {value} on average, in the unit of the label"),
                ("interval_coverage", "{share} of labels lie between the outer quantiles"),
            ),
        )

    @property
    def predict_fix(self) -> str:
        if not self.quantiles:
            return "give the number that is predicted for each row, shape (N,), in the unit of the label"
        count = len(self.quantiles)
        return f"give the {count} declared quantiles of each row, shape (N, {count}), rising, in the unit of the label"

    @property
    def loss(self) -> str:
        return "pinball" if self.quantiles else "squared_error"

    @property
    def score(self) -> str:
        return "mae" if 0.5 in self.quantiles or not self.quantiles else "pinball"

    @property
    def reported(self) -> tuple[str, ...]:
        if not self.quantiles:
            return ("rmse", "mae", "r2", "bias")
        return tuple(name for name in self.metrics if name != "interval_width")

    @property
    def sliced(self) -> tuple[str, ...]:
        return ("pinball", *self._coverages) if self.quantiles else ("rmse", "mae")

    @property
    def _coverages(self) -> tuple[str, ...]:
        return tuple(f"coverage[{level:g}]" for level in self.quantiles)

    @property
    def metrics(self) -> Mapping[str, TaskMetric]:
        return self._metrics

    @cached_property
    def _metrics(self) -> Mapping[str, TaskMetric]:
        """Errors of a number; or of quantiles their loss, how many labels lie below each, and between the outer two."""
        metrics = self._of_quantiles() if self.quantiles else _of_numbers()
        return {metric.name: metric for metric in metrics}

    def _of_quantiles(self) -> list[TaskMetric]:
        levels = self.quantiles
        metrics = [TaskMetric("pinball", False, rows=partial(_mean_pinball, levels=levels), low=0.0)]
        for place, level in enumerate(levels):
            metrics += [
                TaskMetric(f"pinball[{level:g}]", False, rows=partial(_pinball_at, place=place, level=level), low=0.0),
                _share(f"coverage[{level:g}]", partial(_below, place=place)),
            ]
        if 0.5 in levels:
            metrics.append(TaskMetric("mae", False, rows=partial(_absolute_at, place=levels.index(0.5)), low=0.0))
        if len(levels) > 1:
            metrics += [
                _share("interval_coverage", _between),
                TaskMetric(
                    "interval_width", False, rows=lambda _, answers: answers[:, -1] - answers[:, 0], ranks=False
                ),
            ]
        return metrics

    def class_rows(self, labels: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.empty(0, dtype=np.int64)

    def targets(self, truth: np.ndarray) -> np.ndarray:
        return truth.astype("float32")

    def checked_labels(self, labels: Any) -> np.ndarray:
        """Finite float64."""
        return vector("labels", labels)

    def checked(self, labels: Any, answers: Any) -> tuple[np.ndarray, np.ndarray]:
        labels = self.checked_labels(labels)
        if not self.quantiles:
            answers = vector("answers", answers)
            same_length(labels, answers)
            return labels, answers
        answers = vector("quantiles", answers, dimensions=2)
        same_length(labels, answers)
        if answers.shape[1] != len(self.quantiles):
            raise EvaluationError(
                f"each row needs {len(self.quantiles)} quantiles",
                value=answers.shape,
                fix=f"let predict() give shape (N, {len(self.quantiles)}): {', '.join(self.answer_names)}",
            )
        crossed = (answers[:, 1:] < answers[:, :-1]).any(axis=1)
        if crossed.any():
            raise EvaluationError(
                f"the quantiles of {int(crossed.sum())} of {len(answers)} rows cross",
                value=answers[crossed][0].round(4).tolist(),
                fix="let predict() give rising quantiles, for example outputs.sort(dim=1).values",
            )
        return labels, answers

    def prior(self, labels: np.ndarray) -> np.ndarray:
        """The mean, or the labels' own quantiles."""
        import numpy as np

        return np.quantile(labels, self.quantiles) if self.quantiles else np.asarray(labels.mean())

    def row_loss(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return _mean_pinball(labels, answers, self.quantiles) if self.quantiles else _squared_error(labels, answers)

    def shortage(self, labels: Any, groups: Any, minimum_rows: int = 1) -> str:
        reason, _ = few_groups(labels, groups, minimum_rows)
        return reason or self.one_valued(labels)

    def one_valued(self, labels: Any) -> str:
        numbers = self.checked_labels(labels)
        return f"all labels equal ({numbers[0]:g})" if numbers.min() == numbers.max() else ""

    def strata(self, labels: Any) -> np.ndarray:
        """Parts of equal mass by the label's rank; equal labels share one."""
        import numpy as np

        numbers = np.asarray(labels, dtype=np.float64)
        cuts = np.unique(np.quantile(numbers, np.arange(1, STRATA) / STRATA, method="inverted_cdf"))
        return np.searchsorted(cuts, numbers, side="left")

    def events(self, labels: np.ndarray) -> tuple[Event, ...]:
        """The label lies above the middle, the lowest tenth, the highest tenth of these labels."""
        import numpy as np

        cuts = np.quantile(labels, EVENT_QUANTILES, method="inverted_cdf")
        # Where many labels are the greatest one, nothing lies above the cut.
        cuts = dict.fromkeys(float(cut) for cut in cuts if cut < labels.max())
        cuts = cuts or dict.fromkeys([float(labels.min())])
        return tuple(self._event(cut) for cut in cuts)

    def _event(self, cut: float) -> Event:
        return Event(f"label above {cut:.7g}", lambda labels: labels > cut, self._middle)

    def _middle(self, answers: np.ndarray) -> np.ndarray:
        """One number of each answer, (N,): the middle one of several quantiles."""
        return answers[:, len(self.quantiles) // 2] if self.quantiles else answers

    def fit_calibration(self, labels: Any, answers: Any) -> dict[str, Any]:
        """A shift of each quantile; nothing for a number."""
        import numpy as np

        labels, answers = self.checked(labels, answers)
        if not self.quantiles:
            return {}
        rows = len(labels)
        shifts = [
            np.sort(labels - answers[:, place])[_rank(rows, level) - 1] for place, level in enumerate(self.quantiles)
        ]
        return {"shifts": [float(shift) for shift in shifts]}

    @property
    def uncalibrated(self) -> dict[str, Any]:
        return {"shifts": [0.0] * len(self.quantiles)} if self.quantiles else {}

    def calibrated(self, answers: Any, state: Mapping[str, Any]) -> np.ndarray:
        """Shifted, and rising again where shifts made quantiles cross."""
        import numpy as np

        answers = np.asarray(answers, dtype=np.float64)
        return np.sort(answers + np.asarray(state["shifts"]), axis=1) if self.quantiles else answers

    def stretched(self, labels: np.ndarray, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
        """For a number the line through answers and labels of least squares, if it rises; quantiles are shifted."""
        import numpy as np

        center, spread = answers.mean(axis=0), float(self._middle(answers).std())
        if spread <= 1e-9 * max(1.0, float(np.abs(center).max())):
            return None
        slope = float(((self._middle(answers) - self._middle(answers).mean()) * labels).mean()) / spread**2
        if not slope > 0:
            return None
        if self.quantiles:
            state = self.fit_calibration(labels, answers)
            return lambda other_answers: self.calibrated(other_answers, state)
        level = float(labels.mean())
        return lambda other_answers: level + slope * (other_answers - center)

    def tamed(self, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Nearly as they are within the labels' mean distance from their median, like a logarithm beyond."""
        import numpy as np

        middle = np.median(labels)
        distance = float(np.abs(labels - middle).mean()) or 1.0
        return lambda values: np.arcsinh((values - middle) / distance)

    def answer_scale(self, answers: np.ndarray) -> np.ndarray:
        """How far answers lie apart, and a twentieth of each answer's size: float32 knows so many digits of it."""
        import numpy as np

        low, high = np.quantile(answers, (0.1, 0.9), axis=0) if len(answers) else (0.0, 0.0)
        return np.maximum(np.abs(high - low) + 0.05 * np.abs(answers), 1e-30)

    def fit_baseline(
        self, name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int
    ) -> Predictor:
        """The best constant, ridge regression, boosted trees. Of quantiles ridge adds those of its own residuals."""
        import numpy as np

        from trainworthy.lifecycle.tasks.baselines import boosted_numbers, ridge

        if name == "prior" or labels.min() == labels.max():
            constant = self.prior(labels)
            return lambda rows: np.broadcast_to(constant, (len(rows), *constant.shape)).copy()
        if name == "gradient_boosting":
            return boosted_numbers(training, columns, labels, seed, self.quantiles)
        predict = ridge(training, columns, labels, seed)
        if not self.quantiles:
            return predict
        around = np.quantile(labels - predict(training), self.quantiles)
        return lambda rows: predict(rows)[:, None] + around

    def reliability(
        self, labels: np.ndarray, answers: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[ReliabilityBin, ...]:
        """Mean answer, the middle one of several quantiles, against the mean label."""
        return answers_by_bin(labels, self._middle(answers), weights)

    def errors(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray | None:
        """Of the number, or of the quantile nearest to the median."""
        return self._middle(answers) - labels

    def sample_labels(self, rows: int) -> np.ndarray:
        """Numbers from -1 to 1 that go up and down."""
        import numpy as np

        return np.sin(np.arange(rows) * 2.4).round(3)

    def unfit_settings(self, training: TrainingSpec) -> tuple[str, ...]:
        """What is about classes."""
        declared = {
            "class_weights": training.class_weights not in (None, "none"),
            "oversampling": training.oversampling is not None,
            "focal_gamma": training.focal_gamma is not None,
        }
        why = "is about classes, and numbers (kind: regression) have none; a column of role weight weighs rows"
        return tuple(f"training.{name} {why}" for name, given in declared.items() if given)

    def in_words(self, labels: Any) -> str:
        import numpy as np

        low, middle, high = np.quantile(self.checked_labels(labels), (0.1, 0.5, 0.9))
        return f"median {_plain(middle)}, 80 % from {_plain(low)} to {_plain(high)}"

    def target_state(self, labels: np.ndarray) -> dict[str, Any]:
        """Mean and standard deviation of the training rows' labels, so that a network can answer in their unit."""
        import numpy as np

        state: dict[str, Any] = {"mean": float(np.mean(labels)), "standard_deviation": float(np.std(labels)) or 1.0}
        if self.quantiles:
            state["quantiles"] = {f"{level:g}": float(np.quantile(labels, level)) for level in self.quantiles}
        return state


def _plain(number: float) -> str:
    """Four digits; large numbers as people write them."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _rank(rows: int, level: float) -> int:
    """Which of so many residuals in rising order has the level's share below it; outer ones cover at least as much."""
    rank = math.floor((rows + 1) * level) if level < 0.5 else math.ceil((rows + 1) * level)
    return min(max(rank, 1), rows)


def _of_numbers() -> list[TaskMetric]:
    return [
        TaskMetric("squared_error", False, rows=_squared_error, low=0.0),
        TaskMetric("rmse", False, sums=_squares, of_sums=_root_mean, low=0.0),
        TaskMetric("mae", False, rows=lambda labels, answers: abs(answers - labels), low=0.0),
        TaskMetric("median_absolute_error", False, left_out=_median_left_out, low=0.0),
        TaskMetric("r2", True, sums=_for_r2, of_sums=_r2, high=1.0),
        TaskMetric("bias", False, sums=_errors, of_sums=_absolute_mean, low=0.0),
    ]


def _squared_error(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return (answers - labels) ** 2


def _squares(labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    return group_sums([None, _squared_error(labels, answers)], codes, weights)


def _errors(labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    return group_sums([None, answers - labels], codes, weights)


def _absolute_mean(sums: np.ndarray) -> np.ndarray:
    return abs(ratio(sums[..., 1], sums[..., 0]))


def _root_mean(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., 1], sums[..., 0]) ** 0.5


def _for_r2(labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """1, label, its square, squared error; labels are centred, since an offset of 1e6 cost six digits."""
    centred = labels - labels.mean()
    return group_sums([None, centred, centred**2, _squared_error(labels, answers)], codes, weights)


def _r2(sums: np.ndarray) -> np.ndarray:
    spread = sums[..., 2] - ratio(sums[..., 1] ** 2, sums[..., 0])
    return 1 - ratio(sums[..., 3], spread)


def _median_left_out(
    labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """Median of the absolute error, and it without each group; with weights the weighed one.

    Of many small groups some are left out together, at least twice the square root of all rows: a median jumps from one
    row to the next, so that the intervals of 400 rows, each a group, covered 0.73 instead of 0.95 (Efron & Tibshirani
    1993, 11.7).
    """
    import numpy as np

    parts = min(MOST_LEFT_OUT, max(MINIMUM_GROUPS, int(len(labels) ** 0.5) // 2))
    error, codes = np.abs(answers - labels), joined_codes(codes, parts)
    order = np.argsort(error, kind="stable")
    error, codes = error[order], codes[order]
    weigh = np.ones(len(error)) if weights is None else weights[order]

    def median(row_weights: np.ndarray) -> float:
        below = np.cumsum(row_weights)
        half = below[-1] / 2
        low, high = np.searchsorted(below, half, side="left"), np.searchsorted(below, half, side="right")
        return float(error[low] + error[min(high, len(error) - 1)]) / 2

    return median(weigh), np.array([median(weigh * (codes != group)) for group in range(int(codes.max()) + 1)])


def pinball(labels: np.ndarray, answers: np.ndarray, level: float) -> np.ndarray:
    """Pinball loss of a quantile of each row, `(N,)`: level × what it is too low by, (1 - level) × what too high."""
    import numpy as np

    off = labels - answers
    return np.maximum(level * off, (level - 1) * off)


def _mean_pinball(labels: np.ndarray, answers: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    import numpy as np

    losses = [pinball(labels, answers[:, place], level) for place, level in enumerate(levels)]
    return np.add.reduce(losses) / len(levels)


def _pinball_at(labels: np.ndarray, answers: np.ndarray, place: int, level: float) -> np.ndarray:
    return pinball(labels, answers[:, place], level)


def _share(name: str, events: RowFigure) -> TaskMetric:
    return TaskMetric(name, True, rows=events, low=0.0, high=1.0, ranks=False, events=events)


def _below(labels: np.ndarray, answers: np.ndarray, place: int) -> np.ndarray:
    return (labels <= answers[:, place]).astype(float)


def _absolute_at(labels: np.ndarray, answers: np.ndarray, place: int) -> np.ndarray:
    return abs(answers[:, place] - labels)


def _between(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return ((answers[:, 0] <= labels) & (labels <= answers[:, -1])).astype(float)
