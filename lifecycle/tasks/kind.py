"""What every kind of task says, and nothing else has to know: labels, answers, metrics, baselines, calibration.

The label's column is what the snapshot stores; labels are what `checked_labels` makes of it, `(N, ...)`, and what all
functions here take. Answers are what `predict` gives, as `of_predict` reads it: shape `(N, *answer_shape)`, float64.
Statistics are what a table of predictions keeps of a row, `(N, K)`, and what metrics are computed of: for few numbers a
row the answers themselves. Everything here is numpy on whole columns; torch is the worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.metric import TaskMetric

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.protocol.figures import ReliabilityBin
    from trainworthy.lifecycle.spec.training import TrainingSpec

    # Rows with the feature columns → answers (N, *answer_shape).
    Predictor = Callable[[pd.DataFrame], np.ndarray]


BASELINES = ("prior", "linear", "gradient_boosting")


@dataclass(frozen=True)
class Event:
    """A yes or no about a label, and the score of an answer that ranks rows by it.

    Of a binary label it is the label itself, of classes one class against the rest, of numbers "above a threshold".
    What asks how well something ranks, such as leakage and reviews of inputs, asks it of events.
    """

    name: str
    of_labels: Callable[[np.ndarray], np.ndarray]
    of_answers: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Claim:
    """What answers say of rows that is so or not: that the label is 1, that the class is b.

    `so` `(N,)` of booleans is what is observed, `probability` `(N,)` what is claimed, `decided` what is predicted;
    None where nothing is, as of the class that a row was given, whichever it is. Where decisions are declared,
    `decision` is what they are of a row of which it is predicted.
    """

    name: str
    so: np.ndarray
    probability: np.ndarray
    decided: np.ndarray | None
    decision: int = 1


# All is told of so many claims, the first: of a label of many classes the rest would fill the record. What decides is
# asked of all.
MOST_CLAIMS = 13


@dataclass(frozen=True)
class Copy:
    """From which figures on a column that decides an event is taken for a copy of the label: Youden's J of its best cut
    over all rows and on held-out ones, and the area under the curve.

    A copy decides all events of a label; of several labels a row each is one of its own: it is enough to decide one.
    """

    youden: float
    held_youden: float
    auc: float
    of_one_event: bool = False


# Chosen on half of the planted faults of benchmarks/leakage.py; docs/decisions/0015 has the other half.
COPY_OF_CLASSES = Copy(youden=0.83, held_youden=0.70, auc=0.97)
COPY_OF_LABELS = Copy(youden=0.83, held_youden=0.70, auc=0.97, of_one_event=True)
# The least J over the events of a number, on 20,000 rows: a copy has 0.99, one with 5 % of its values exchanged 0.934,
# one with 10 % noise 0.958, a column that correlates by 0.99 with the label 0.909, the value of an hour before in a
# series of autocorrelation 0.98 0.868. Such an honest column has an AUC of 0.993.
COPY_OF_NUMBERS = Copy(youden=0.92, held_youden=0.85, auc=0.995)


class Kind(Protocol):
    """A kind of task. Functions take labels and answers that `checked` has seen."""

    @property
    def name(self) -> str:
        """As use_case.yaml has it."""
        ...

    @property
    def classes(self) -> tuple[Any, ...]:
        """The label's classes, or a row's possible labels, in the order of the contract; empty for numbers."""
        ...

    @property
    def declares_classes(self) -> bool:
        """Whether the contract chose the classes, so that one which no row has is a mistake."""
        ...

    @property
    def class_axis(self) -> int:
        """The dimension of what predict gives that holds the classes, where it holds some."""
        ...

    @property
    def ragged(self) -> bool:
        """Whether a row may have fewer places than another; targets beyond its end are below 0."""
        ...

    @property
    def has_decisions(self) -> bool:
        """Whether claims of it are decided, so that there are rates of decisions."""
        ...

    @property
    def takes_cost_matrix(self) -> bool:
        """Whether its answers are a probability of each class, so that the cheapest class can be answered."""
        ...

    @property
    def baselines(self) -> tuple[str, ...]:
        """The baselines that there are: prior, linear, and gradient_boosting where the kind has a peer of it."""
        ...

    @property
    def answer_names(self) -> tuple[str, ...]:
        """Names of the numbers of an answer; one empty name where an answer is one number, of shape ()."""
        ...

    @property
    def answers(self) -> str:
        """What answers are called: probabilities, numbers, quantiles."""
        ...

    @property
    def words(self) -> Words:
        """What people call its prior, its linear baseline, its loss and its answers."""
        ...

    @property
    def predict_fix(self) -> str:
        """What predict() in model.py has to give, for somebody whose predict gives something else."""
        ...

    @property
    def row_classes(self) -> int:
        """Of how many classes each row has exactly one, which may weigh rows; 0 where labels are no such thing."""
        ...

    def class_rows(self, labels: np.ndarray) -> np.ndarray:
        """How many rows have each of the `classes`, (classes,)."""
        ...

    def truth(self, values: Any) -> np.ndarray:
        """All that is known of rows' labels, `(N, ...)`, of the label's column or its files (Rows.truth)."""
        ...

    def targets(self, truth: np.ndarray) -> np.ndarray:
        """What loss_fn gets of `truth`, (N, ...), float32 or int64."""
        ...

    @property
    def answer_shape(self) -> tuple[int, ...]:
        """Shape of the answer of one row."""
        ...

    def of_predict(self, raw: Any, *, whole: bool = False) -> np.ndarray:
        """Answers `(N, *answer_shape)` of what predict gave; `whole` ones with all that it gave, for `statistics`."""
        ...

    def aligned(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Answers, whole or not, in the size of the truth that they are compared with."""
        ...

    @property
    def statistic_names(self) -> tuple[str, ...]:
        """Names of a row's statistics; one empty name where they are one number."""
        ...

    @property
    def drifting(self) -> tuple[str, ...]:
        """Statistics that say what is answered, whatever is true."""
        ...

    def statistics(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """What is kept of rows' (whole) answers: `(N,)` or `(N, K)`. Raises EvaluationError."""
        ...

    def checked_statistics(self, labels: Any, statistics: Any) -> tuple[np.ndarray, np.ndarray]:
        """Labels and statistics from a table of predictions. Raises EvaluationError, as `checked`."""
        ...

    @property
    def loss(self) -> str:
        """Name of the loss of each row that the stages are judged by: one of the metrics."""
        ...

    @property
    def score(self) -> str:
        """Name of a metric that people know, shown beside the loss."""
        ...

    @property
    def metrics(self) -> Mapping[str, TaskMetric]:
        """All metrics by name, of labels and statistics."""
        ...

    @property
    def copy(self) -> Copy:
        """What tells a copy of the label from an honest strong column."""
        ...

    @property
    def per_class(self) -> tuple[str, ...]:
        """Metrics of one class, which are named `recall[class]`; empty for kinds without."""
        ...

    @property
    def reported(self) -> tuple[str, ...]:
        """Metrics that every evaluation measures."""
        ...

    @property
    def sliced(self) -> tuple[str, ...]:
        """Metrics of each slice."""
        ...

    def checked_labels(self, labels: Any) -> np.ndarray:
        """Labels `(N, ...)`, N >= 1, of a label's column, or of labels again.

        Raises EvaluationError where a value is none of the kind's.
        """
        ...

    def checked(self, labels: Any, answers: Any) -> tuple[np.ndarray, np.ndarray]:
        """Labels and answers. Raises EvaluationError where a value is none of the kind's, or shapes do not fit."""
        ...

    def served(self, answers: np.ndarray) -> dict[str, Any]:
        """What a service answers, by column, a value for each of `(N, ...)` whole answers."""
        ...

    def prior(self, labels: np.ndarray) -> np.ndarray:
        """The best constant answer for these labels, shape answer_shape."""
        ...

    def row_loss(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """`loss` of each row, `(N,)`; less is better."""
        ...

    def shortage(self, labels: Any, groups: Any, minimum_rows: int = 1) -> str:
        """Why rows with these labels and groups carry no interval, in words; empty if they do."""
        ...

    def one_valued(self, labels: Any) -> str:
        """Why labels that are all alike can't be learned from, in words; empty if they differ."""
        ...

    def strata(self, labels: Any) -> np.ndarray:
        """Codes `(N,)` of parts of the labels that a sample takes its share of each of."""
        ...

    def events(self, labels: np.ndarray) -> tuple[Event, ...]:
        """The events of these (training) labels, the main one first."""
        ...

    def fit_calibration(self, labels: Any, answers: Any) -> dict[str, Any]:
        """State, JSON-able, that makes answers of rows like these true. Raises EvaluationError where it can't be."""
        ...

    @property
    def uncalibrated(self) -> dict[str, Any]:
        """The state that leaves answers as they are."""
        ...

    def calibrated(self, answers: Any, state: Mapping[str, Any]) -> np.ndarray:
        """Answers with a state of fit_calibration."""
        ...

    def tamed(self, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Brings labels and answers of rows with these labels to a scale on which no few rows outweigh all others.

        It keeps their order, so that what answers tell of labels is told there too.
        """
        ...

    def stretched(self, labels: np.ndarray, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
        """What makes answers as sure as rows with these labels bear, keeping their order.

        None where it would turn the order round, or where these rows can't tell.
        """
        ...

    def without_weights(self, answers: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Answers of a network that learned with weights by class; `shift` is the logarithm of each class's."""
        ...

    def answer_scale(self, answers: np.ndarray) -> np.ndarray:
        """What a difference of each answer is held against, in the answers' shape: 1 for probabilities."""
        ...

    def fit_baseline(
        self, name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int
    ) -> Predictor:
        """One of the `baselines`, fitted on training rows.

        Where answers have a `whole` form, a predictor may have a method of that name, which gives it.
        """
        ...

    def fit_place_inputs(
        self, training: pd.DataFrame, columns: list[str], labels: np.ndarray
    ) -> tuple[tuple[str, ...], Callable[[pd.DataFrame], dict[str, np.ndarray]]]:
        """The feature columns that have the answers' places, and what gives them of any rows, by name: `(N, channels,
        height, width)` float32, or `(N, length)` int64. None of a kind without places. Raises EvaluationError where no
        column has them.
        """
        ...

    def later_changed(
        self, values: np.ndarray, labels: np.ndarray, share: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Values of a feature with other ones from a place on, that share of each row's way, and the places, `(N,)`.

        Whole answers up to that place must not know them. None unless the feature is what is predicted place by place.
        """
        ...

    def reliability(
        self, labels: np.ndarray, answers: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[ReliabilityBin, ...]:
        """What is answered against what is observed, in bins by the answer; `answers` are statistics."""
        ...

    def claims(self, labels: np.ndarray, answers: np.ndarray) -> tuple[Claim, ...]:
        """All that `answers` (statistics) say of rows by a probability, the main ones first; empty where none is."""
        ...

    def judged_losses(self, labels: np.ndarray, statistics: np.ndarray) -> JudgedLosses:
        """The kind's loss of each row; weighed by sizes, their mean is the metric of that name."""
        ...

    def errors(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray | None:
        """By how much `answers` (statistics) lie above the labels, `(N,)`; None where labels are no numbers."""
        ...

    def sample_labels(self, rows: int) -> np.ndarray:
        """Labels to try functions on, `(rows,)`, as varied as they come."""
        ...

    def sample_truth(self, rows: int, size: tuple[int, ...] | None) -> np.ndarray:
        """As `sample_labels`, all that is known of so many labels; `size` is that of their files, if declared."""
        ...

    def unfit_settings(self, training: TrainingSpec) -> tuple[str, ...]:
        """Settings of a training that mean nothing for this kind, each with why."""
        ...

    def in_words(self, labels: Any) -> str:
        """What labels are there, for a table of splits: `22.5 % label 1`."""
        ...

    def target_state(self, labels: np.ndarray) -> dict[str, Any]:
        """What build_model may know of the training rows' labels, JSON-able; empty where it needs nothing."""
        ...


class JudgedLosses(NamedTuple):
    """Of each row its loss, and how much of what is judged it holds, as a text's bytes; both `(N,)`.

    `sizes` is None where rows count alike.
    """

    losses: np.ndarray
    sizes: np.ndarray | None = None

    def weights(self, of_rows: np.ndarray | None) -> np.ndarray | None:
        """What weighs a mean of the losses, of weights of the rows `(N,)`."""
        if self.sizes is None or of_rows is None:
            return of_rows if self.sizes is None else self.sizes
        return self.sizes * of_rows


# Rows whose whole answers are held at once where each has many places: 64 texts of 4,096 bytes are 512 MiB.
AT_ONCE = 64


def parts_of(kind: Kind, rows: int) -> list[slice]:
    """All of so many rows, or AT_ONCE of them at a time where an answer has many places."""
    size = max(1, rows) if len(kind.answer_shape) < 2 else AT_ONCE
    return [slice(start, start + size) for start in range(0, max(1, rows), size)]
