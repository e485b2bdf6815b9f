"""Kind multiclass: the label is one of declared classes, stored as its place among them; the answer is a probability of
each, shape `(N, classes)`.

A class that neither labels nor predictions hold is left out of means over classes, as scikit-learn does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.input_checks import same_length, vector
from trainworthy.lifecycle.tasks.interval import few_groups, spread_problem
from trainworthy.lifecycle.tasks.kind import COPY_OF_CLASSES, Claim, Event
from trainworthy.lifecycle.tasks.metric import TaskMetric, among, cell_sums, mean_of_known, ratio
from trainworthy.lifecycle.tasks.probabilities import (
    SMALLEST_PROBABILITY,
    calibration_error_left_out,
    logarithms,
    reliability,
)
from trainworthy.lifecycle.tasks.usual import FewNumbers

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.protocol.figures import ReliabilityBin
    from trainworthy.lifecycle.spec.training import TrainingSpec
    from trainworthy.lifecycle.tasks.kind import Predictor
    from trainworthy.lifecycle.tasks.metric import RowFigure

# How far from 1 the probabilities of a row may add up: float32 sums of many classes differ by less.
SUM_TOLERANCE = 1e-3
# Events are asked of so many classes at most, the most frequent first.
MOST_EVENTS = 12


class Multiclass(FewNumbers):
    """A label of several classes, of which a row has one."""

    name = "multiclass"
    answers = "probabilities"
    has_decisions = True
    takes_cost_matrix = True
    words = Words(
        constant="always predicting the training rows' share of each class",
        predicted="mean probability of the predicted class",
        observed="share of rows of that class",
        familiar=(("accuracy", "the predicted class is right for {share} of rows"),),
    )
    copy = COPY_OF_CLASSES
    loss, score = "log_loss", "accuracy"
    per_class = ("recall", "precision", "f1")
    reported = ("log_loss", "brier", "accuracy", "balanced_accuracy", "macro_f1", "calibration_error")
    sliced = ("log_loss", "accuracy")

    def __init__(self, classes: tuple[Any, ...]) -> None:
        self.classes = classes

    @property
    def row_classes(self) -> int:
        return len(self.classes)

    @property
    def answer_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.classes)

    @property
    def predict_fix(self) -> str:
        count = len(self.classes)
        return f"give a probability of each of the {count} classes, shape (N, {count}), for example by softmax(dim=1)"

    @property
    def metrics(self) -> Mapping[str, TaskMetric]:
        return self._metrics

    @cached_property
    def _metrics(self) -> Mapping[str, TaskMetric]:
        """Losses, shares of right predictions over all rows and over classes, calibration, and figures of one class."""
        count = len(self.classes)
        metrics = [
            TaskMetric("log_loss", False, rows=log_loss, low=0.0),
            TaskMetric("brier", False, rows=brier, low=0.0),
            TaskMetric("accuracy", True, rows=_right, low=0.0, high=1.0, decides=True, events=_right),
            _of_counts("balanced_accuracy", count, _balanced_accuracy),
            _of_counts("macro_f1", count, _macro_f1),
            TaskMetric("calibration_error", False, left_out=_calibration, low=0.0, high=1.0),
        ]
        for place, name in enumerate(self.classes):
            metrics += [
                _of_counts(
                    f"{metric}[{name}]",
                    count,
                    lambda counts, of=of, place=place: of(counts)[..., place],
                    events=None if events is None else partial(events, place=place),
                )
                for metric, of, events in (
                    ("recall", _recalls, _recalled),
                    ("precision", _precisions, _confirmed),
                    ("f1", _f1s, None),
                )
            ]
        return {metric.name: metric for metric in metrics}

    def class_rows(self, labels: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.bincount(labels, minlength=len(self.classes))

    def targets(self, truth: np.ndarray) -> np.ndarray:
        return truth.astype("int64")

    def checked_labels(self, labels: Any) -> np.ndarray:
        """Places among the classes, int64."""
        import numpy as np

        places = vector("labels", labels)
        wrong = (places != np.floor(places)) | (places < 0) | (places >= len(self.classes))
        if wrong.any():
            raise EvaluationError(
                f"{int(wrong.sum())} of {len(places)} labels are no place among the {len(self.classes)} classes",
                value=float(places[wrong][0]),
                fix="name every class of the label in contract.yaml (label: classes)",
            )
        return places.astype(np.int64)

    def checked(self, labels: Any, answers: Any) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        labels, answers = self.checked_labels(labels), vector("probabilities", answers, dimensions=2)
        same_length(labels, answers)
        if answers.shape[1] != len(self.classes):
            raise EvaluationError(
                f"each row needs {len(self.classes)} probabilities, one of each class",
                value=answers.shape,
                fix="let predict() give shape (N, classes), in the order of the contract's classes",
            )
        outside = ((answers < 0) | (answers > 1)).any(axis=1)
        if outside.any():
            raise EvaluationError(
                f"{int(outside.sum())} of {len(answers)} rows have probabilities outside [0, 1]",
                value=answers[outside][0].round(4).tolist(),
                fix="let predict() give probabilities, for example the softmax of the model's outputs",
            )
        off = np.abs(answers.sum(axis=1) - 1) > SUM_TOLERANCE
        if off.any():
            raise EvaluationError(
                f"the probabilities of {int(off.sum())} of {len(answers)} rows do not add up to 1",
                value=float(answers[off][0].sum()),
                fix="let predict() give the softmax of the outputs over the classes: softmax(dim=1)",
            )
        return labels, answers

    def prior(self, labels: np.ndarray) -> np.ndarray:
        """The share of each class."""
        import numpy as np

        return np.bincount(labels, minlength=len(self.classes)) / len(labels)

    def row_loss(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return log_loss(labels, answers)

    def shortage(self, labels: Any, groups: Any, minimum_rows: int = 1) -> str:
        """Two classes must each lie in two groups, so that no group alone holds what the others differ from."""
        import numpy as np

        reason, codes = few_groups(labels, groups, minimum_rows)
        if reason:
            return reason
        labels = self.checked_labels(labels)
        spread = [place for place in np.unique(labels) if len(np.unique(codes[labels == place])) > 1]
        return "" if len(spread) > 1 else spread_problem(len(spread))

    def one_valued(self, labels: Any) -> str:
        return "one class only" if len(set(self.checked_labels(labels))) < 2 else ""

    def strata(self, labels: Any) -> np.ndarray:
        """The classes."""
        import numpy as np

        return np.asarray(labels, dtype=np.int64)

    def events(self, labels: np.ndarray) -> tuple[Event, ...]:
        """One class against the rest, the most frequent first."""
        import numpy as np

        counts = np.bincount(labels.astype(np.int64), minlength=len(self.classes))
        order = [int(place) for place in np.argsort(-counts, kind="stable") if counts[place]]
        return tuple(_class_event(place, str(self.classes[place])) for place in order[:MOST_EVENTS])

    def fit_calibration(self, labels: Any, answers: Any) -> dict[str, Any]:
        """One slope for all logarithms and one intercept a class (bias-corrected temperature scaling).

        Source: Alexandari, Kundaje & Shrikumar 2020.
        """
        labels, answers = self.checked(labels, answers)
        return fit_slope_and_intercepts(logarithms(answers), labels)

    @property
    def uncalibrated(self) -> dict[str, Any]:
        return {"slope": 1.0, "intercepts": [0.0] * len(self.classes)}

    def calibrated(self, answers: Any, state: Mapping[str, Any]) -> np.ndarray:
        import numpy as np
        from scipy.special import softmax

        answers = np.asarray(answers, dtype=np.float64)
        if not len(answers):
            return answers
        return softmax(state["slope"] * logarithms(answers) + np.asarray(state["intercepts"]), axis=1)

    def stretched(self, labels: np.ndarray, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
        """The calibration, if its slope is above 0."""
        if len(set(labels)) < 2:
            return None
        state = self.fit_calibration(labels, answers)
        return (lambda other_answers: self.calibrated(other_answers, state)) if state["slope"] > 0 else None

    def without_weights(self, answers: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Probabilities divided by the weight of their class."""
        from scipy.special import softmax

        return softmax(logarithms(answers) - shift, axis=1)

    def fit_baseline(
        self, name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int
    ) -> Predictor:
        """The share of each class, multinomial logistic regression, boosted trees."""
        import numpy as np

        from trainworthy.lifecycle.tasks.baselines import boosted_classes, logistic_regression

        if name == "prior":
            shares = self.prior(labels)
            return lambda rows: np.tile(shares, (len(rows), 1))
        present = np.unique(labels)
        if len(present) < 2:
            return self.fit_baseline("prior", training, columns, labels, seed)
        fit = {"linear": logistic_regression, "gradient_boosting": boosted_classes}[name]
        predict = fit(training, columns, labels, seed)

        def answers(rows: pd.DataFrame) -> np.ndarray:
            # A class that the training rows lack has no column in what scikit-learn gives.
            probabilities = np.zeros((len(rows), len(self.classes)))
            probabilities[:, present] = predict(rows)
            return probabilities

        return answers

    def reliability(
        self, labels: np.ndarray, answers: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[ReliabilityBin, ...]:
        """Mean probability of the predicted class against the share that has it."""
        return reliability(_right(labels, answers), answers.max(axis=1), weights)

    def claims(self, labels: np.ndarray, answers: np.ndarray) -> tuple[Claim, ...]:
        """That the predicted class is right, and of each class that a row has it, the most frequent first."""
        import numpy as np

        predicted = answers.argmax(axis=1)
        counts = np.bincount(labels, minlength=len(self.classes))
        return (
            Claim("predicted class", predicted == labels, answers.max(axis=1), None),
            *(
                Claim(
                    f"class {self.classes[place]}", labels == place, answers[:, place], predicted == place, int(place)
                )
                for place in np.argsort(-counts, kind="stable")
            ),
        )

    def sample_labels(self, rows: int) -> np.ndarray:
        """The classes in turn."""
        import numpy as np

        return np.arange(rows) % len(self.classes)

    def unfit_settings(self, training: TrainingSpec) -> tuple[str, ...]:
        """What names a positive class."""
        why = "belongs to a label of two values (kind: binary)"
        reasons = []
        if training.oversampling is not None:
            reasons.append(f"training.oversampling {why}; training.class_weights: balanced weighs all classes")
        if training.focal_gamma is not None:
            reasons.append(f"training.focal_gamma {why}: what its probabilities stand for is known for two classes")
        if training.class_weights not in (None, "none", "balanced"):
            reasons.append(f"training.class_weights: {{positive: …}} {why}; write balanced, or none")
        return tuple(reasons)

    def in_words(self, labels: Any) -> str:
        import numpy as np

        counts = np.bincount(self.checked_labels(labels), minlength=len(self.classes))
        rarest = int(counts.argmin())
        return f"{len(self.classes)} classes, rarest {self.classes[rarest]} {counts[rarest] / counts.sum():.1%}"

    def target_state(self, labels: np.ndarray) -> dict[str, Any]:
        """The classes, so that the network knows how many outputs it has."""
        return {"classes": list(self.classes)}


def log_loss(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Negative logarithm of the label's probability in nats, `(N,)`; probabilities are clipped to [1e-7, 1]."""
    import numpy as np

    of_label = np.take_along_axis(answers, labels[:, None], axis=1)[:, 0]
    return -np.log(np.clip(of_label, SMALLEST_PROBABILITY, 1.0))


def brier(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Squared errors of all probabilities of a row, added up, `(N,)`, in [0, 2]."""
    import numpy as np

    of_label = np.take_along_axis(answers, labels[:, None], axis=1)[:, 0]
    return np.square(answers).sum(axis=1) - 2 * of_label + 1


def _class_event(place: int, name: str) -> Event:
    return Event(f"class {name}", lambda labels: labels == place, lambda answers: answers[:, place])


def _predicted(answers: np.ndarray) -> np.ndarray:
    """The place of the most probable class, `(N,)`; of what is decided, `(N,)`, that itself."""
    return answers.argmax(axis=1) if answers.ndim > 1 else answers.astype("int64")


def _right(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return (_predicted(answers) == labels).astype(float)


def _recalled(labels: np.ndarray, answers: np.ndarray, place: int) -> np.ndarray:
    return among(labels == place, _predicted(answers) == place)


def _confirmed(labels: np.ndarray, answers: np.ndarray, place: int) -> np.ndarray:
    return among(_predicted(answers) == place, labels == place)


def _of_counts(
    name: str, count: int, formula: Callable[[np.ndarray], np.ndarray], events: RowFigure | None = None
) -> TaskMetric:  # fmt: skip
    """A metric of three counts of each class (..., 3, classes): its rows, predictions of it, and those that are both.

    Not of the whole confusion matrix: where each row is a group, 100 classes would take 10,000 numbers a row.
    """

    def sums(labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        import numpy as np

        predicted = _predicted(answers)
        # Rows that are predicted wrongly go to a cell behind the classes.
        hit = np.where(predicted == labels, labels, count)
        both = cell_sums(hit, count + 1, codes, weights)[:, :count]
        counts = (cell_sums(labels, count, codes, weights), cell_sums(predicted, count, codes, weights), both)
        return np.concatenate(counts, axis=1)

    def of_sums(sums: np.ndarray) -> np.ndarray:
        return formula(sums.reshape(*sums.shape[:-1], 3, count))

    return TaskMetric(name, True, sums=sums, of_sums=of_sums, low=0.0, high=1.0, decides=True, events=events)


def _recalls(counts: np.ndarray) -> np.ndarray:
    return ratio(counts[..., 2, :], counts[..., 0, :])


def _precisions(counts: np.ndarray) -> np.ndarray:
    return ratio(counts[..., 2, :], counts[..., 1, :])


def _f1s(counts: np.ndarray) -> np.ndarray:
    return ratio(2 * counts[..., 2, :], counts[..., 0, :] + counts[..., 1, :])


def _balanced_accuracy(counts: np.ndarray) -> np.ndarray:
    return mean_of_known(_recalls(counts))


def _macro_f1(counts: np.ndarray) -> np.ndarray:
    return mean_of_known(_f1s(counts))


def _calibration(
    labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """Of the probability of the class that is predicted."""
    return calibration_error_left_out(answers.max(axis=1), _right(labels, answers), codes, weights)


def fit_slope_and_intercepts(logarithms: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """The most likely slope and intercepts, of which each lies about where it changes nothing (a normal of variance 1).

    Convex. That prior weighs as much as about a row, and keeps all finite where classes are missing or perfectly
    separated. Smoothed targets, as Platt's, did worse: 0.108 nats on 504 digits after a fit on 270, 0.065 so, and 0.068
    without a calibration.
    """
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    rows, count = logarithms.shape
    places = np.arange(rows)

    def loss(change: np.ndarray) -> tuple[float, np.ndarray]:
        predicted = log_softmax((1 + change[0]) * logarithms + change[1:], axis=1)
        error = np.exp(predicted)
        error[places, labels] -= 1
        gradient = np.concatenate([[float((error * logarithms).sum())], error.sum(axis=0)]) + change
        return float(-predicted[places, labels].sum() + change @ change / 2), gradient

    solution = minimize(loss, np.zeros(count + 1), jac=True, method="L-BFGS-B", options={"maxiter": 500, "gtol": 1e-6})
    if not np.isfinite(solution.x).all():
        raise EvaluationError(
            "the calibration found no minimum",
            value=solution.x.tolist(),
            fix="look at the spread of the model's outputs",
        )
    return {"slope": 1 + float(solution.x[0]), "intercepts": solution.x[1:].tolist()}
