"""Kind binary: the label is 0 or 1, the answer is the probability of 1, shape `(N,)`.

The formulas of single metrics are in probabilities.py, Platt scaling is in platt.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.interval import few_groups, joined_codes
from trainworthy.lifecycle.tasks.kind import COPY_OF_CLASSES, Claim, Event
from trainworthy.lifecycle.tasks.metric import TaskMetric, among, cell_sums, ratio
from trainworthy.lifecycle.tasks.probabilities import (
    brier,
    calibration_error_left_out,
    checked,
    checked_labels,
    log_loss,
    reliability,
    require_both_classes,
)
from trainworthy.lifecycle.tasks.ranking import auc_left_out
from trainworthy.lifecycle.tasks.usual import FewNumbers

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.protocol.figures import ReliabilityBin
    from trainworthy.lifecycle.spec.training import TrainingSpec
    from trainworthy.lifecycle.tasks.kind import Predictor

# A label is predicted from this probability on, where a metric asks for a prediction of 0 or 1.
THRESHOLD = 0.5
# Each group left out of an average precision goes through all positive rows: more groups than this are joined.
MOST_LEFT_OUT = 1_000


class Binary(FewNumbers):
    """A label of two values."""

    name = "binary"
    row_classes = 2
    classes = (0, 1)
    answer_names = ("",)
    answers = "probabilities"
    has_decisions = True
    words = Words()
    predict_fix = "give the probability of the positive label of each row, shape (N,), for example by torch.sigmoid"
    copy = COPY_OF_CLASSES
    loss, score = "log_loss", "auc"
    per_class: tuple[str, ...] = ()
    reported = ("log_loss", "brier", "auc", "calibration_error")
    # The calibration error is left out: over 200 rows a perfect model with a base rate of 0.2 shows about 0.07.
    sliced = ("log_loss", "brier", "auc")

    @property
    def metrics(self) -> Mapping[str, TaskMetric]:
        return self._metrics

    @cached_property
    def _metrics(self) -> Mapping[str, TaskMetric]:
        """Losses, ranking, calibration, and what a decision at a probability of 0.5 gets right."""
        metrics = (
            TaskMetric("log_loss", False, rows=log_loss, low=0.0),
            TaskMetric("brier", False, rows=brier, low=0.0),
            TaskMetric("auc", True, left_out=auc_left_out, low=0.0, high=1.0),
            TaskMetric("average_precision", True, left_out=_average_precision_left_out, low=0.0, high=1.0),
            TaskMetric("calibration_error", False, left_out=_calibration, low=0.0, high=1.0),
            *(_of_decisions(name, formula) for name, formula in _DECISIONS.items()),
        )
        return {metric.name: metric for metric in metrics}

    def class_rows(self, labels: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.bincount(labels.astype(np.int64), minlength=2)

    def targets(self, truth: np.ndarray) -> np.ndarray:
        return truth.astype("float32")

    def checked_labels(self, labels: Any) -> np.ndarray:
        return checked_labels(labels)

    def checked(self, labels: Any, answers: Any) -> tuple[np.ndarray, np.ndarray]:
        return checked(labels, answers)

    def prior(self, labels: np.ndarray) -> np.ndarray:
        """The share of label 1."""
        import numpy as np

        return np.asarray(labels.mean(), dtype=np.float64)

    def row_loss(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return log_loss(labels, answers)

    def shortage(self, labels: Any, groups: Any, minimum_rows: int = 1) -> str:
        """Both labels must lie in two groups at least, so that an AUC is defined without any one of them."""
        import numpy as np

        reason, codes = few_groups(labels, groups, minimum_rows)
        if reason:
            return reason
        labels = checked_labels(labels)
        for label in (0, 1):
            holding = len(np.unique(codes[labels == label]))
            if holding < 2:
                return f"label {label} occurs in {holding} groups, fewer than 2"
        return ""

    def one_valued(self, labels: Any) -> str:
        return "one class only" if len(set(checked_labels(labels))) < 2 else ""

    def strata(self, labels: Any) -> np.ndarray:
        """The labels themselves."""
        import numpy as np

        return np.asarray(labels, dtype=np.int64)

    def events(self, labels: np.ndarray) -> tuple[Event, ...]:
        """The label is 1."""
        return (Event("label 1", lambda values: values == 1, lambda answers: answers),)

    def fit_calibration(self, labels: Any, answers: Any) -> dict[str, Any]:
        """Platt scaling."""
        from trainworthy.lifecycle.tasks.platt import fit_platt

        return dict(fit_platt(labels, answers))

    @property
    def uncalibrated(self) -> dict[str, Any]:
        return {"slope": 1.0, "intercept": 0.0}

    def calibrated(self, answers: Any, state: Mapping[str, Any]) -> np.ndarray:
        from trainworthy.lifecycle.tasks.platt import apply_platt

        return apply_platt(answers, state)

    def stretched(self, labels: np.ndarray, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
        """Platt scaling of a slope above 0."""
        if len(set(labels)) < 2:
            return None
        state = self.fit_calibration(labels, answers)
        return (lambda other_answers: self.calibrated(other_answers, state)) if state["slope"] > 0 else None

    def without_weights(self, answers: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """The log-odds less what the weights raised them by."""
        raised = float(shift[1] - shift[0])
        return self.calibrated(answers, {"slope": 1.0, "intercept": -raised}) if raised else answers

    def fit_baseline(
        self, name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int
    ) -> Predictor:
        """The share of label 1, logistic regression, boosted trees."""
        import numpy as np

        from trainworthy.lifecycle.tasks.baselines import boosted_classes, logistic_regression

        require_both_classes(labels)
        if name == "prior":
            share = float(labels.mean())
            return lambda rows: np.full(len(rows), share)
        fit = {"linear": logistic_regression, "gradient_boosting": boosted_classes}[name]
        predict = fit(training, columns, labels, seed)
        return lambda rows: predict(rows)[:, 1]

    def reliability(
        self, labels: np.ndarray, answers: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[ReliabilityBin, ...]:
        """Mean probability against the share of label 1."""
        return reliability(labels, answers, weights)

    def claims(self, labels: np.ndarray, answers: np.ndarray) -> tuple[Claim, ...]:
        """That the label is 1, decided at a probability of 0.5."""
        return (Claim("label 1", labels == 1, answers, answers >= THRESHOLD),)

    def sample_labels(self, rows: int) -> np.ndarray:
        """0 and 1 in turn."""
        import numpy as np

        return np.arange(rows) % 2

    def unfit_settings(self, training: TrainingSpec) -> tuple[str, ...]:
        return ()

    def in_words(self, labels: Any) -> str:
        return f"{float(self.checked_labels(labels).mean()):.1%} label 1"

    def target_state(self, labels: np.ndarray) -> dict[str, Any]:
        """Nothing: a network finds the base rate by itself."""
        return {}


BINARY = Binary()

# Of a decision at THRESHOLD, by the rows in each cell: true and false negatives, false and true positives.
_DECISIONS: dict[str, Callable[..., np.ndarray]] = {
    "accuracy": lambda tn, fn, fp, tp: ratio(tp + tn, tp + fp + fn + tn),
    "balanced_accuracy": lambda tn, fn, fp, tp: (ratio(tp, tp + fn) + ratio(tn, tn + fp)) / 2,
    "precision": lambda tn, fn, fp, tp: ratio(tp, tp + fp),
    "recall": lambda tn, fn, fp, tp: ratio(tp, tp + fn),
    "f1": lambda tn, fn, fp, tp: ratio(2 * tp, 2 * tp + fp + fn),
}


def _of_decisions(name: str, formula: Callable[..., np.ndarray]) -> TaskMetric:
    def of_sums(sums: np.ndarray) -> np.ndarray:
        return formula(*(sums[..., place] for place in range(4)))

    return TaskMetric(
        name, True, sums=_decided, of_sums=of_sums, low=0.0, high=1.0, decides=True, events=_EVENTS.get(name)
    )


def _decided_events(labels: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return labels == 1, answers >= THRESHOLD


def _right(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    so, decided = _decided_events(labels, answers)
    return (so == decided).astype(float)


def _recalled(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return among(*_decided_events(labels, answers))


def _confirmed(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return among(*reversed(_decided_events(labels, answers)))


# Decisions that are shares of rows.
_EVENTS = {"accuracy": _right, "recall": _recalled, "precision": _confirmed}


def _decided(labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """True and false negatives, false and true positives of each group, (G, 4)."""
    return cell_sums(2 * (answers >= THRESHOLD) + (labels == 1), 4, codes, weights)


def _average_precision_left_out(
    labels: np.ndarray, scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Average precision, Σ (recall_i - recall_i-1) · precision_i over different scores, and it without each group.

    It is the mean over positive rows of the precision among rows that score as high. Only positive rows are gone
    through for each group: what lies above each of them, less what of that is the group's.
    """
    import numpy as np

    require_both_classes(labels)
    order, codes = np.argsort(-scores, kind="stable"), joined_codes(codes, MOST_LEFT_OUT)
    codes, ranked, positive = codes[order], scores[order], labels[order] == 1
    weigh = np.ones(len(order)) if weights is None else weights[order]
    # Rows of one score are passed together: each reaches to the last of them.
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    reach = last[np.searchsorted(last, np.flatnonzero(positive))]
    above, hits = np.cumsum(weigh)[reach], np.cumsum(weigh * positive)[reach]
    own, mine = weigh[positive], codes[positive]

    def mean_precision(above: np.ndarray, hits: np.ndarray, own: np.ndarray) -> float:
        total = float(own.sum())
        return float((own * ratio(hits, above)).sum()) / total if total > 0 else float("nan")

    def without(rows: np.ndarray) -> float:
        """`rows` are the places of the group's rows."""
        at = np.searchsorted(reach, rows)
        less, fewer = (np.cumsum(np.bincount(at, weights=row_weights, minlength=len(reach) + 1))[:-1]
                       for row_weights in (weigh[rows], weigh[rows] * positive[rows]))  # fmt: skip
        remaining = mine != codes[rows[0]]
        return mean_precision((above - less)[remaining], (hits - fewer)[remaining], own[remaining])

    groups = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    return mean_precision(above, hits, own), np.array([without(rows) for rows in groups])


def _calibration(
    labels: np.ndarray, probabilities: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    return calibration_error_left_out(probabilities, labels, codes, weights)
