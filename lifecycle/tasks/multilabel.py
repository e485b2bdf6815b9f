"""Kind multilabel: a row has any number of declared labels; the answer is a probability of each, shape `(N, labels)`.

The probabilities of a row need not add up to 1. Stored is a text of '0' and '1', one character a label in the order of
the contract: the first and the third of four are '1010'. A label is predicted from a probability of 0.5 on.

Of means over labels one is left out that has no value: F1 where neither rows nor predictions have the label, AUC where
the rows all have it or none does. Loss, Brier score and shares of rows count each label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.input_checks import same_length, vector
from trainworthy.lifecycle.tasks.interval import few_groups
from trainworthy.lifecycle.tasks.kind import COPY_OF_LABELS, Claim, Event
from trainworthy.lifecycle.tasks.metric import TaskMetric, among, cell_sums, mean_of_known, ratio
from trainworthy.lifecycle.tasks.probabilities import SMALLEST_PROBABILITY, answers_by_bin, calibration_error_left_out
from trainworthy.lifecycle.tasks.ranking import auc_left_out
from trainworthy.lifecycle.tasks.usual import FewNumbers

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.protocol.figures import ReliabilityBin
    from trainworthy.lifecycle.spec.training import TrainingSpec
    from trainworthy.lifecycle.tasks.kind import Predictor

# A label is predicted from this probability on, where a metric asks for a prediction.
THRESHOLD = 0.5
# Events are asked of so many labels at most, the most frequent first.
MOST_EVENTS = 12
# The most frequent combinations of labels are strata of their own, all others one together.
MOST_STRATA = 10
# Boosted trees are fitted for so many labels, the most frequent first. Each takes as long as those of a binary label.
MOST_BOOSTED = 20


class Multilabel(FewNumbers):
    """Several labels, of which a row has any number."""

    name = "multilabel"
    # No class weighs a row: it may have several.
    row_classes = 0
    answers = "probabilities"
    has_decisions = True
    words = Words(
        constant="always predicting the training rows' share of each label",
        predicted="mean predicted probability of a label",
        observed="share of rows that have it",
        familiar=(
            ("macro_auc", "a row with a label ranks above one without it in {share} of pairs, mean over labels"),
        ),
    )
    copy = COPY_OF_LABELS
    loss, score = "log_loss", "macro_auc"
    per_class = ("recall", "precision", "f1", "auc")
    reported = (
        "log_loss", "brier", "macro_auc", "macro_f1", "micro_f1", "hamming_loss", "subset_accuracy",
        "calibration_error",
    )  # fmt: skip
    sliced = ("log_loss", "macro_auc", "macro_f1")

    def __init__(self, classes: tuple[Any, ...]) -> None:
        self.classes = classes

    @property
    def answer_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.classes)

    @property
    def predict_fix(self) -> str:
        count = len(self.classes)
        return f"give a probability of each of the {count} labels, shape (N, {count}), for example by torch.sigmoid"

    @property
    def metrics(self) -> Mapping[str, TaskMetric]:
        return self._metrics

    @cached_property
    def _metrics(self) -> Mapping[str, TaskMetric]:
        """Losses, decisions and ranking over all labels, calibration, and figures of one label."""
        metrics = [
            TaskMetric("log_loss", False, rows=log_loss, low=0.0),
            TaskMetric("brier", False, rows=brier, low=0.0),
            TaskMetric("macro_auc", True, left_out=_macro_auc, low=0.0, high=1.0),
            TaskMetric("macro_f1", True, sums=_decided, of_sums=_macro_f1, low=0.0, high=1.0),
            TaskMetric("micro_f1", True, sums=_decided, of_sums=_micro_f1, low=0.0, high=1.0),
            TaskMetric("hamming_loss", False, rows=_share_wrong, low=0.0, high=1.0),
            TaskMetric("subset_accuracy", True, rows=_all_right, low=0.0, high=1.0, events=_all_right),
            TaskMetric("calibration_error", False, left_out=_calibration, low=0.0, high=1.0),
        ]
        for place, name in enumerate(self.classes):
            metrics += [_of_label(metric, place, str(name), formula) for metric, formula in _DECISIONS.items()]
            metrics.append(_auc_of_label(place, str(name)))
        return {metric.name: metric for metric in metrics}

    def class_rows(self, labels: np.ndarray) -> np.ndarray:
        return labels.sum(axis=0).astype("int64")

    def targets(self, truth: np.ndarray) -> np.ndarray:
        """0 and 1, `(N, labels)`."""
        return truth.astype("float32")

    def checked_labels(self, labels: Any) -> np.ndarray:
        """0 and 1 as float64 `(N, labels)`, of such an array or of stored texts `(N,)`."""
        import numpy as np

        values = np.asarray(labels)
        if values.ndim == 1 and len(values):
            return _of_texts(values, len(self.classes))
        values = vector("labels", values, dimensions=2)
        if values.shape[1] != len(self.classes):
            raise EvaluationError(
                f"each row needs {len(self.classes)} values of 0 and 1, one of each label",
                value=values.shape,
                fix="give shape (N, labels), in the order of the contract",
            )
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            raise EvaluationError(
                f"{int(wrong.sum())} of {values.size} labels are neither 0 nor 1",
                value=float(values[wrong][0]),
                fix="write 1 where the row has the label, else 0",
            )
        return values

    def checked(self, labels: Any, answers: Any) -> tuple[np.ndarray, np.ndarray]:
        labels, answers = self.checked_labels(labels), vector("probabilities", answers, dimensions=2)
        same_length(labels, answers)
        if answers.shape[1] != len(self.classes):
            raise EvaluationError(
                f"each row needs {len(self.classes)} probabilities, one of each label",
                value=answers.shape,
                fix="let predict() give shape (N, labels), in the order of the contract's classes",
            )
        if answers.min() < 0 or answers.max() > 1:
            outside = ((answers < 0) | (answers > 1)).any(axis=1)
            raise EvaluationError(
                f"{int(outside.sum())} of {len(answers)} rows have probabilities outside [0, 1]",
                value=answers[outside][0].round(4).tolist(),
                fix="let predict() give probabilities, for example the sigmoid of the model's outputs",
            )
        return labels, answers

    def prior(self, labels: np.ndarray) -> np.ndarray:
        """The share of each label."""
        return labels.mean(axis=0)

    def row_loss(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return log_loss(labels, answers)

    def shortage(self, labels: Any, groups: Any, minimum_rows: int = 1) -> str:
        """Of one label at least, rows with and without it must each lie in two groups."""
        reason, codes = few_groups(labels, groups, minimum_rows)
        if reason:
            return reason
        values = self.checked_labels(labels)
        spread = any(_in_two_groups(column, codes) for column in values.T)
        return "" if spread else "no label is there in two groups and absent in two, so that none can be told apart"

    def one_valued(self, labels: Any) -> str:
        values = self.checked_labels(labels)
        return "all rows have the same labels" if (values == values[0]).all() else ""

    def strata(self, labels: Any) -> np.ndarray:
        """The most frequent combinations of labels, and one of all others."""
        import numpy as np

        packed = np.packbits(self.checked_labels(labels).astype(bool), axis=1)
        _, codes, counts = np.unique(packed, axis=0, return_inverse=True, return_counts=True)
        places = np.empty(len(counts), dtype=np.int64)
        places[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
        return np.minimum(places, MOST_STRATA - 1)[codes.reshape(-1)]

    def events(self, labels: np.ndarray) -> tuple[Event, ...]:
        """A row has the label, the most frequent first; only labels that some rows have and some have not."""
        import numpy as np

        counts = labels.sum(axis=0)
        order = [int(place) for place in np.argsort(-counts, kind="stable") if 0 < counts[place] < len(labels)]
        return tuple(_label_event(place, str(self.classes[place])) for place in order[:MOST_EVENTS])

    def fit_calibration(self, labels: Any, answers: Any) -> dict[str, Any]:
        """Platt scaling of each label; one that all of these rows have, or none, stays as it is."""
        from trainworthy.lifecycle.tasks.platt import fit_platt

        labels, answers = self.checked(labels, answers)
        states = [
            {"slope": 1.0, "intercept": 0.0} if column.min() == column.max() else fit_platt(column, answers[:, place])
            for place, column in enumerate(labels.T)
        ]
        return {f"{key}s": [float(state[key]) for state in states] for key in ("slope", "intercept")}

    @property
    def uncalibrated(self) -> dict[str, Any]:
        return {"slopes": [1.0] * len(self.classes), "intercepts": [0.0] * len(self.classes)}

    def calibrated(self, answers: Any, state: Mapping[str, Any]) -> np.ndarray:
        import numpy as np
        from scipy.special import expit, logit

        answers = np.asarray(answers, dtype=np.float64)
        slopes, intercepts = np.asarray(state["slopes"]), np.asarray(state["intercepts"])
        clipped = np.clip(answers, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
        as_it_is = (slopes == 1) & (intercepts == 0)
        return np.where(as_it_is, answers, expit(slopes * logit(clipped) + intercepts))

    def stretched(self, labels: np.ndarray, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
        """The calibration; a label whose order it would turn round gets its share in these rows instead.

        None where it would turn all round.
        """
        import numpy as np

        state = self.fit_calibration(labels, answers)
        varied = labels.min(axis=0) < labels.max(axis=0)
        turned, prior = np.asarray(state["slopes"]) <= 0, self.prior(labels)
        if not (varied & ~turned).any():
            return None
        return lambda other_answers: np.where(turned, prior, self.calibrated(other_answers, state))

    def fit_baseline(
        self, name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int
    ) -> Predictor:
        """The share of each label; of each label logistic regression or boosted trees against the rest.

        Trees are fitted for the 20 most frequent labels, and logistic regression for the others. A label that all rows
        have, or none, keeps its share.
        """
        import numpy as np

        from trainworthy.lifecycle.tasks.baselines import boosted_labels, logistic_regressions

        shares = self.prior(labels)
        varied = np.flatnonzero((shares > 0) & (shares < 1))
        if name == "prior" or not len(varied):
            return lambda rows: np.tile(shares, (len(rows), 1))
        order = varied[np.argsort(-shares[varied], kind="stable")]
        boosted = order[:MOST_BOOSTED] if name == "gradient_boosting" else order[:0]
        parts = [
            (places, fit(training, columns, labels[:, places], seed))
            for places, fit in ((boosted, boosted_labels), (order[len(boosted) :], logistic_regressions))
            if len(places)
        ]

        def answers(rows: pd.DataFrame) -> np.ndarray:
            probabilities = np.tile(shares, (len(rows), 1))
            for places, predict in parts:
                probabilities[:, places] = predict(rows)
            return probabilities

        return answers

    def reliability(
        self, labels: np.ndarray, answers: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[ReliabilityBin, ...]:
        """Mean probability against the share of rows that have the label, over all labels together."""
        return answers_by_bin(labels.ravel(), answers.ravel(), _of_each_label(weights, labels.shape[1]))

    def claims(self, labels: np.ndarray, answers: np.ndarray) -> tuple[Claim, ...]:
        """That a row has a label, decided at a probability of 0.5; the most frequent label first."""
        import numpy as np

        return tuple(
            Claim(
                f"label {self.classes[place]}",
                labels[:, place] == 1,
                answers[:, place],
                answers[:, place] >= THRESHOLD,
            )
            for place in np.argsort(-labels.sum(axis=0), kind="stable")
        )

    def sample_labels(self, rows: int) -> np.ndarray:
        """Each label in every second, third or fourth row, so that rows have none, some and all of them."""
        import numpy as np

        places = np.arange(len(self.classes))
        return ((np.arange(rows)[:, None] + places) % (2 + places % 3) == 0).astype(np.float64)

    def unfit_settings(self, training: TrainingSpec) -> tuple[str, ...]:
        """What weighs or draws rows by the one class that a row would have."""
        why = "goes by the one class of a row, and a row of kind multilabel has several labels"
        reasons = []
        if training.class_weights not in (None, "none"):
            fix = "give loss_fn in model.py a pos_weight of each label instead"
            reasons.append(f"training.class_weights {why}; {fix}")
        if training.oversampling is not None:
            reasons.append(f"training.oversampling {why}; a column of role weight weighs rows")
        if training.focal_gamma is not None:
            reasons.append(f"training.focal_gamma {why}: what its probabilities stand for is known for two classes")
        return tuple(reasons)

    def in_words(self, labels: Any) -> str:
        values = self.checked_labels(labels)
        shares = self.prior(values)
        rarest = int(shares.argmin())
        return (
            f"{len(self.classes)} labels, {shares.sum():.2f} a row on average, rarest {self.classes[rarest]} "
            f"{shares[rarest]:.1%}"
        )

    def target_state(self, labels: np.ndarray) -> dict[str, Any]:
        """The labels' names, so that the network knows how many outputs it has."""
        return {"classes": list(self.classes)}


def log_loss(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Binary log loss in nats, the mean over the labels, `(N,)`; probabilities are clipped to [1e-7, 1 - 1e-7]."""
    import numpy as np

    happened = np.abs(1 - labels - answers)
    np.clip(happened, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY, out=happened)
    # A logarithm is dear: one of a product of so many, which float64 still holds (1e-7 ** 40 is 1e-280).
    parts = [happened[:, start : start + 40].prod(axis=1) for start in range(0, happened.shape[1], 40)]
    return -np.add.reduce([np.log(part) for part in parts]) / happened.shape[1]


def brier(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Squared error of the probability, the mean over the labels, `(N,)`, in [0, 1]."""
    import numpy as np

    return np.square(answers - labels).mean(axis=1)


def _of_texts(texts: np.ndarray, count: int) -> np.ndarray:
    """Stored texts `(N,)` of '0' and '1' as float64 `(N, count)`."""
    import numpy as np

    try:
        # One more, or a text that is too long would be cut to what fits.
        encoded = np.asarray(texts, dtype=f"S{count + 1}")
    except UnicodeEncodeError:
        encoded = np.full(len(texts), b"")
    digits = np.ascontiguousarray(encoded).view(np.uint8).reshape(len(texts), -1)
    known = digits[:, :count]
    wrong = ~((known == ord("0")) | (known == ord("1"))).all(axis=1) | (digits[:, count:] != 0).any(axis=1)
    if encoded.dtype.itemsize <= count or wrong.any():
        rows = int(wrong.sum())
        raise EvaluationError(
            f"{rows} of {len(texts)} labels are no text of {count} digits 0 and 1, one of each label",
            value=str(texts[wrong][0]),
            fix="name every label in contract.yaml (label: classes)",
        )
    return (known == ord("1")).astype(np.float64)


def _in_two_groups(column: np.ndarray, codes: np.ndarray) -> bool:
    """True if rows with and without the label lie in two groups each."""
    import numpy as np

    return all(len(np.unique(codes[column == value])) > 1 for value in (0, 1))


def _label_event(place: int, name: str) -> Event:
    return Event(f"label {name}", lambda labels: labels[:, place] == 1, lambda answers: answers[:, place])


def _share_wrong(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return ((answers >= THRESHOLD) != labels).mean(axis=1)


def _all_right(labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return ((answers >= THRESHOLD) == labels).all(axis=1).astype(float)


def _decided(labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Rows in each cell of each label, of each group, (G, labels · 4): see _DECISIONS."""
    import numpy as np

    places = range(labels.shape[1])
    return np.concatenate([_cells(labels, answers, place, codes, weights) for place in places], axis=1)


def _cells(
    labels: np.ndarray, answers: np.ndarray, place: int, codes: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    return cell_sums(2 * (answers[:, place] >= THRESHOLD) + (labels[:, place] == 1), 4, codes, weights)


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    return mean_of_known(_f1(sums.reshape(*sums.shape[:-1], -1, 4)))


def _micro_f1(sums: np.ndarray) -> np.ndarray:
    return _f1(sums.reshape(*sums.shape[:-1], -1, 4).sum(axis=-2))


def _f1(cells: np.ndarray) -> np.ndarray:
    """Of cells (..., 4)."""
    return _DECISIONS["f1"](*(cells[..., place] for place in range(4)))


def _macro_auc(
    labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """Mean over the labels that rows have and have not, of all rows and without each group."""
    import numpy as np

    varied = [place for place, column in enumerate(labels.T) if column.min() < column.max()]
    if not varied:
        raise EvaluationError(
            "no label is there in some rows and absent in others",
            value=labels[0].tolist(),
            fix="take rows whose labels differ",
        )
    aucs = [auc_left_out(labels[:, place], answers[:, place], codes, weights) for place in varied]
    return float(np.mean([value for value, _ in aucs])), mean_of_known(np.stack([each for _, each in aucs], axis=1))


# Of a decision at THRESHOLD, by the rows in each cell: true and false negatives, false and true positives.
_DECISIONS: dict[str, Callable[..., np.ndarray]] = {
    "recall": lambda tn, fn, fp, tp: ratio(tp, tp + fn),
    "precision": lambda tn, fn, fp, tp: ratio(tp, tp + fp),
    "f1": lambda tn, fn, fp, tp: ratio(2 * tp, 2 * tp + fp + fn),
}


def _of_label(metric: str, place: int, name: str, formula: Callable[..., np.ndarray]) -> TaskMetric:
    def sums(labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        return _cells(labels, answers, place, codes, weights)

    def of_sums(sums: np.ndarray) -> np.ndarray:
        return formula(*(sums[..., cell] for cell in range(4)))

    events = _EVENTS.get(metric)
    return TaskMetric(
        f"{metric}[{name}]", True, sums=sums, of_sums=of_sums, low=0.0, high=1.0,
        events=None if events is None else partial(events, place=place),
    )  # fmt: skip


def _recalled(labels: np.ndarray, answers: np.ndarray, place: int) -> np.ndarray:
    return among(labels[:, place] == 1, answers[:, place] >= THRESHOLD)


def _confirmed(labels: np.ndarray, answers: np.ndarray, place: int) -> np.ndarray:
    return among(answers[:, place] >= THRESHOLD, labels[:, place] == 1)


# Decisions that are shares of rows.
_EVENTS = {"recall": _recalled, "precision": _confirmed}


def _auc_of_label(place: int, name: str) -> TaskMetric:
    def left_out(
        labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
    ) -> tuple[float, np.ndarray]:
        return auc_left_out(labels[:, place], answers[:, place], codes, weights)

    return TaskMetric(f"auc[{name}]", True, left_out=left_out, low=0.0, high=1.0)


def _calibration(
    labels: np.ndarray, answers: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """Of the probabilities of all labels together."""
    import numpy as np

    count = labels.shape[1]
    return calibration_error_left_out(
        answers.ravel(), labels.ravel(), np.repeat(codes, count), _of_each_label(weights, count)
    )


def _of_each_label(weights: np.ndarray | None, count: int) -> np.ndarray | None:
    import numpy as np

    return None if weights is None else np.repeat(weights, count)
