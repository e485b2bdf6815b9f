"""Kind language_model: the label is a text, and what is predicted is each of its bytes by those before it; the answer
is a probability of each of the 256 bytes at each of `length` places, `(N, length, 256)` from predict.

Bytes are those of UTF-8, so that bits per byte compare any two models of a text and no tokenizer has to be trusted. Of
a document the first `length` bytes are predicted; longer ones are cut into pieces where the dataset is made. Places
beyond a document's end hold NOTHING in targets and labels, and count nowhere.

As masks are, texts are judged in two ways. While a model is trained, and wherever rows are compared by their labels, a
text stands for at most PLACES of its bytes, evenly spread over `length`. The benchmark is judged by all bytes: of each
row the statistics of `statistic_names` are kept. Metrics are pooled: the bytes of all rows are counted together, so
that a long document weighs more than a short one. `row_loss` is the mean of each document by itself.

A contract alone says no `length`. Then (`length` 0) there are no answers, and a text stands for PLACES bytes that are
spread over its own ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.input_checks import same_length
from trainworthy.lifecycle.tasks.interval import few_groups
from trainworthy.lifecycle.tasks.kind import COPY_OF_CLASSES, Event, JudgedLosses
from trainworthy.lifecycle.tasks.metric import TaskMetric, ratio
from trainworthy.lifecycle.tasks.multiclass import SUM_TOLERANCE
from trainworthy.lifecycle.tasks.places import (
    CALIBRATION_ERROR,
    CALIBRATION_NAMES,
    UNSCORED,
    Places,
    calibration_statistics,
    sums_of,
)
from trainworthy.lifecycle.tasks.probabilities import logarithms
from trainworthy.lifecycle.tasks.texts import BYTES, NOTHING, bytes_of, later_changed

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.tasks.kind import Predictor

# Of each document while training: 32 places of 256 probabilities are 64 KiB a row.
PLACES = 32
# Places that a calibration is fitted on: a slope is one number, and more places change no digit shown.
CALIBRATION_PLACES = 20_000
STRATA, MOST_EVENTS, FREQUENT = 4, 4, 12
_FIX = "let predict() give outputs.softmax(dim=-1) of outputs of shape (N, length, 256)"


class LanguageModel(Places):
    """A label that is a text, of which the next byte is predicted."""

    name = "language_model"
    answers = "probabilities of bytes"
    words = Words(
        prior="share of each byte",
        linear="byte n-gram",
        constant="always predicting the training rows' share of each byte",
        a_row="nats a byte",
        predicted="mean probability of the most probable byte",
        observed="share of bytes that are it",
        familiar=(
            ("perplexity", "as unsure as among {value} equally likely bytes"),
            ("accuracy", "the most probable byte is right in {share} of places"),
        ),
    )
    classes: tuple[Any, ...] = tuple(range(BYTES))
    declares_classes = False
    class_axis = -1
    ragged = True
    baselines = ("prior", "linear")
    why_unfit = "and a text has a byte at each place (kind: language_model); remove it"
    copy = COPY_OF_CLASSES
    loss, score = "log_loss", "bits_per_byte"
    per_class: tuple[str, ...] = ()
    reported = ("log_loss", "bits_per_byte", "perplexity", "accuracy", "calibration_error")
    sliced = ("log_loss", "bits_per_byte")
    statistic_names = ("nats", "bytes", "hits", "entropy", *CALIBRATION_NAMES)
    # What is answered, whatever is true: how unsure the model is, in nats a byte.
    drifting = ("entropy",)

    def __init__(self, length: int) -> None:
        self.length = length

    @property
    def answer_names(self) -> tuple[str, ...]:
        """Answers of another length are no answers to the same question."""
        return (f"{self.length} bytes",)

    @property
    def predict_fix(self) -> str:
        return (
            f"give a probability of each of the {BYTES} bytes at each of the {self.length} places, shape "
            f"(N, {self.length}, {BYTES}), for example by softmax(dim=-1)"
        )

    @property
    def _places(self) -> np.ndarray:
        """The places that are judged while training, evenly spread over `length`, the first one among them."""
        import numpy as np

        count = min(PLACES, self.length)
        return np.arange(count) * self.length // max(1, count)

    @property
    def answer_shape(self) -> tuple[int, ...]:
        return (len(self._places), BYTES)

    @property
    def metrics(self) -> Mapping[str, TaskMetric]:
        return _METRICS

    def class_rows(self, labels: np.ndarray) -> np.ndarray:
        """How many rows hold each byte at a judged place, (256,)."""
        return (self._shares(labels) > 0).sum(axis=0)

    def truth(self, values: Any) -> np.ndarray:
        """The bytes of texts, int16 `(N, length)`, NOTHING beyond their end; labels as they are. Raises."""
        import numpy as np

        values = np.asarray(values)
        return self.checked_labels(values) if values.ndim > 1 else bytes_of(values, self.length)

    def targets(self, truth: np.ndarray) -> np.ndarray:
        """Bytes, int64 `(N, length)`; NOTHING (-100, what cross_entropy leaves out) beyond the end."""
        return truth.astype("int64")

    def checked_labels(self, labels: Any) -> np.ndarray:
        """Bytes at the judged places, int16 `(N, P)`, of texts, of all their bytes `(N, length)`, or of labels."""
        import numpy as np

        codes = np.asarray(labels)
        if not len(codes):
            raise EvaluationError("labels must have shape (N,) with N >= 1", value=codes.shape, fix="give one a row")
        if codes.ndim == 1:
            codes = bytes_of(codes, self.length) if self.length else bytes_of(codes, PLACES, spread=True)
        widths = (self.length, len(self._places)) if self.length else (PLACES,)
        if codes.ndim != 2 or codes.shape[1] not in widths:
            fix = f"give the bytes of each document at {widths[0]} places, {NOTHING} beyond its end"
            raise EvaluationError("the bytes of documents have another shape", value=codes.shape, fix=fix)
        if self.length and codes.shape[1] == self.length:
            codes = codes[:, self._places]
        wrong = (codes != NOTHING) & ((codes < 0) | (codes >= BYTES))
        if wrong.any():
            fix = f"give whole numbers from 0 to 255, and {NOTHING} beyond a document's end"
            problem = f"{int(wrong.sum())} of {codes.size} labels are no bytes"
            raise EvaluationError(problem, value=float(codes[wrong][0]), fix=fix)
        if (codes[:, 0] == NOTHING).any():
            problem = f"{int((codes[:, 0] == NOTHING).sum())} of {len(codes)} documents are empty"
            raise EvaluationError(problem, fix="leave such rows out where the dataset is made")
        return codes.astype(np.int16)

    def of_predict(self, raw: Any, *, whole: bool = False) -> np.ndarray:
        """Probabilities `(N, P, 256)` in float64 of what predict gives, or at all places. Raises EvaluationError."""
        import numpy as np

        raw = np.asarray(raw)
        if raw.ndim != 3 or raw.shape[1:] != (self.length, BYTES):
            problem = f"each of {self.length} places needs {BYTES} probabilities, one of each byte"
            raise EvaluationError(problem, value=raw.shape, fix=_FIX)
        return raw if whole else raw[:, self._places].astype(np.float64)

    def checked(self, labels: Any, answers: Any) -> tuple[np.ndarray, np.ndarray]:
        """At the judged places."""
        import numpy as np

        labels, answers = self.checked_labels(labels), np.asarray(answers, dtype=np.float64)
        same_length(labels, answers)
        if answers.shape[1:] != self.answer_shape:
            raise EvaluationError("answers are no probabilities of bytes at places", value=answers.shape, fix=_FIX)
        _check_probabilities(answers)
        return labels, answers

    def statistics(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """`statistic_names` of each row, float64 `(N, K)`, of bytes (N, T) and probabilities (N, T, 256).

        Raises EvaluationError where answers are no probabilities.
        """
        import numpy as np

        same_length(truth, answers)
        if answers.shape[1:] == self.answer_shape and truth.shape[1] == self.length:
            # A baseline of the use case's own answers at the judged places alone, and is judged by these.
            truth = truth[:, self._places]
        if answers.shape != (*truth.shape, BYTES):
            raise EvaluationError("answers are no probabilities of bytes at places", value=answers.shape, fix=_FIX)
        return np.stack([_of_row(known, answer) for known, answer in zip(truth, answers, strict=True)])

    def aligned(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Probabilities at as many places as the truth has; between judged places those of the one before."""
        import numpy as np

        count, size = answers.shape[1], truth.shape[1]
        return answers if count == size else answers[:, np.arange(size) * count // size]

    def served(self, answers: np.ndarray) -> dict[str, Any]:
        """`next`: the most probable byte at each place, that behind the last one among them; and its `probability`."""
        return {"next": answers.argmax(axis=2).tolist(), "probability": answers.max(axis=2).tolist()}

    def prior(self, labels: np.ndarray) -> np.ndarray:
        """The share of each byte, each counted once more, so that none costs infinitely much; `(P, 256)`."""
        import numpy as np

        counts = np.bincount(labels[labels >= 0].astype(np.int64), minlength=BYTES) + 1.0
        return np.broadcast_to(counts / counts.sum(), self.answer_shape).copy()

    def row_loss(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Mean over a document's judged bytes of the negative logarithm of the byte's probability, in nats."""
        import numpy as np

        known = labels >= 0
        of_byte = np.take_along_axis(answers, np.maximum(labels, 0)[..., None].astype(np.int64), axis=2)[..., 0]
        nats = -logarithms(of_byte)
        return np.where(known, nats, 0.0).sum(axis=1) / known.sum(axis=1)

    def judged_losses(self, labels: np.ndarray, statistics: np.ndarray) -> JudgedLosses:
        """Nats a byte of each text, which counts by its bytes."""
        nats, sizes = statistics[:, 0], statistics[:, 1]
        return JudgedLosses(nats / sizes, sizes)

    def shortage(self, labels: Any, groups: Any, minimum_rows: int = 1) -> str:
        return few_groups(labels, groups, minimum_rows)[0] or self.one_valued(labels)

    def one_valued(self, labels: Any) -> str:
        import numpy as np

        codes = np.unique(self.checked_labels(labels))
        held = codes[codes >= 0]
        return f"one byte only ({bytes([int(held[0])])!r})" if len(held) < 2 else ""

    def _shares(self, labels: np.ndarray) -> np.ndarray:
        """Of each byte among each document's judged ones, (N, 256)."""
        import numpy as np

        known = labels >= 0
        cells = np.arange(len(labels))[:, None] * BYTES + np.maximum(labels, 0)
        counts = np.bincount(cells[known], minlength=len(labels) * BYTES).reshape(-1, BYTES)
        return counts / known.sum(axis=1, keepdims=True)

    def strata(self, labels: Any) -> np.ndarray:
        """Quarters of the rows by the document's length."""
        import numpy as np

        values = np.asarray(labels)
        lengths = _lengths(values) if values.ndim == 1 else (values >= 0).sum(axis=1)
        cuts = np.unique(np.quantile(lengths, np.arange(1, STRATA) / STRATA, method="inverted_cdf"))
        return np.searchsorted(cuts, lengths, side="left")

    def events(self, labels: np.ndarray) -> tuple[Event, ...]:
        """A frequent byte is more frequent than in the median of these documents; those that part them best first."""
        import numpy as np

        shares = self._shares(labels)
        frequent = np.argsort(-shares.sum(axis=0), kind="stable")[:FREQUENT]
        cuts = np.median(shares, axis=0)
        uneven = np.abs((shares > cuts).mean(axis=0) - 0.5)
        varied = [int(byte) for byte in frequent if np.ptp(shares[:, byte]) > 0]
        best = sorted(varied, key=lambda byte: float(uneven[byte])) or [int(frequent[0])]
        return tuple(self._event(byte, float(cuts[byte])) for byte in best[:MOST_EVENTS])

    def _event(self, byte: int, cut: float) -> Event:
        return Event(
            f"more than {cut:.1%} of the bytes are {bytes([byte])!r}",
            lambda labels: self._shares(labels)[:, byte] > cut,
            lambda answers: answers[..., byte].mean(axis=1),
        )

    def fit_calibration(self, labels: Any, answers: Any) -> dict[str, Any]:
        """One slope for all logarithms (a temperature is its inverse), on places that are evenly spread."""
        import numpy as np

        labels, answers = self.checked(labels, answers)
        rows, places = np.nonzero(labels >= 0)
        chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), CALIBRATION_PLACES)).astype(np.int64))
        rows, places = rows[chosen], places[chosen]
        return {"slope": _fit_slope(logarithms(answers[rows, places]), labels[rows, places].astype(np.int64))}

    @property
    def uncalibrated(self) -> dict[str, Any]:
        return {"slope": 1.0}

    def fit_baseline(
        self, name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int
    ) -> Predictor:
        """The share of each byte, or a byte n-gram of the feature that is the text. Raises EvaluationError."""
        from trainworthy.lifecycle.tasks.ngram import ConstantBytes, fit_ngram

        if name == "prior":
            return ConstantBytes(self.prior(labels)[0], self.length, self._places)
        text = self._text_column(training, columns, labels)
        return fit_ngram(training[text], text, self.length, self._places)

    def fit_place_inputs(
        self, training: pd.DataFrame, columns: list[str], labels: np.ndarray
    ) -> tuple[tuple[str, ...], Callable[[pd.DataFrame], dict[str, np.ndarray]]]:
        """`before`, the byte before each place; BYTES before the first one and beyond the end."""
        import numpy as np

        text = self._text_column(training, columns, labels)

        def before(rows: pd.DataFrame) -> dict[str, np.ndarray]:
            codes = np.full((len(rows), self.length), BYTES, dtype=np.int64)
            codes[:, 1:] = bytes_of(rows[text], self.length)[:, :-1]
            return {"before": np.where(codes == NOTHING, BYTES, codes)}

        return (text,), before

    def _text_column(self, training: pd.DataFrame, columns: list[str], labels: np.ndarray) -> str:
        """The feature that is the text. Raises EvaluationError."""
        texts = [column for column in columns if self._is_text(training[column], labels)]
        if not texts:
            fix = "give the text's column the role feature in contract.yaml: its earlier bytes are the input"
            raise EvaluationError("no feature is the text that is predicted", value=columns, fix=fix)
        return texts[0]

    def _is_text(self, values: pd.Series, labels: np.ndarray) -> bool:
        """Whether a column's texts are those of the labels."""
        import numpy as np

        try:
            return np.array_equal(self.checked_labels(values.to_numpy()), labels)
        except EvaluationError:
            return False

    def later_changed(
        self, values: np.ndarray, labels: np.ndarray, share: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Texts whose bytes from a place on, that share of each document's way, are others, and the place of each.

        None where the values are not the texts of these labels.
        """
        import numpy as np

        try:
            same = np.array_equal(self.checked_labels(values), labels)
        except EvaluationError:
            return None
        return later_changed(values, self.length, share) if same else None

    def sample_labels(self, rows: int) -> np.ndarray:
        return self.checked_labels(self.sample_truth(rows, None))

    def sample_truth(self, rows: int, size: tuple[int, ...] | None) -> np.ndarray:
        """Documents of rising letters, the last ones of which are half as long."""
        import numpy as np

        length = self.length or PLACES
        truth = ord("a") + (np.arange(rows)[:, None] + np.arange(length)) % 26
        truth[rows // 2 :, max(1, length // 2) :] = NOTHING
        return truth.astype(np.int16)

    def in_words(self, labels: Any) -> str:
        """Of texts: `median 231 bytes, 98 different ones`, and what lies beyond `length`: no model learns it."""
        import numpy as np

        values = np.asarray(labels)
        if values.ndim == 1:
            held, lengths = set().union(*(text.encode() for text in values)), _lengths(values)
            summary = f"median {np.median(lengths):,.0f} bytes, {len(held)} different ones"
            beyond = np.maximum(lengths - self.length, 0) if self.length else np.zeros(1)
            if not beyond.any():
                return summary
            return (
                f"{summary}; {int((beyond > 0).sum()):,} of {len(lengths):,} are longer than length: {self.length}, "
                f"and {beyond.sum() / lengths.sum():.0%} of all bytes are left out"
            )
        known = values >= 0
        return (
            f"median {np.median(known.sum(axis=1)):,.0f} judged bytes, {len(np.unique(values[known]))} different ones"
        )

    def target_state(self, labels: np.ndarray) -> dict[str, Any]:
        """How many places there are, and how many bytes at each."""
        return {"length": self.length, "bytes": BYTES}


def _lengths(texts: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.array([len(text.encode()) for text in texts])


def _check_probabilities(answers: np.ndarray) -> None:
    """Raises EvaluationError unless the last dimension holds probabilities that add up to 1."""
    import numpy as np

    wrong = ~((answers.min(axis=-1) >= 0) & (np.abs(answers.sum(axis=-1) - 1) <= SUM_TOLERANCE))
    if wrong.any():
        first_wrong = answers[wrong][0]
        raise EvaluationError(
            f"the answers at {int(wrong.sum())} of {wrong.size} places are no probabilities that add up to 1",
            value=f"sum {first_wrong.sum():.4g}, lowest {first_wrong.min():.4g}",
            fix=_FIX,
        )


def _of_row(known: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """Sums over the bytes of one document; the entropy is their mean."""
    import numpy as np

    places = np.flatnonzero(known >= 0)
    truth, answer = known[places].astype(np.int64), answer[places].astype(np.float64)
    if not np.isfinite(answer).all():
        wrong = int((~np.isfinite(answer)).sum())
        raise EvaluationError("answers at places of a text are not finite", value=wrong, fix=UNSCORED)
    _check_probabilities(answer)
    predicted = answer.argmax(axis=1)
    of_byte, sure = (np.take_along_axis(answer, at[:, None], axis=1)[:, 0] for at in (truth, predicted))
    right = predicted == truth
    nats = -logarithms(of_byte).sum()
    entropy = -(answer * logarithms(answer)).sum(axis=1).mean()
    return np.concatenate([[nats, len(places), right.sum(), entropy], *calibration_statistics(sure, right)])


def _fit_slope(logarithms: np.ndarray, labels: np.ndarray) -> float:
    """The most likely slope of logarithms (M, 256), by Newton's method on a convex loss.

    It lies about 1, where it changes nothing (a normal of variance 1, which weighs as much as about a byte and keeps
    the slope finite where every byte is foreseen).
    """
    import numpy as np
    from scipy.special import log_softmax

    at = logarithms[np.arange(len(labels)), labels]

    def loss(slope: float) -> tuple[float, float, float]:
        predicted = log_softmax(slope * logarithms, axis=1)
        shares = np.exp(predicted)
        mean = (shares * logarithms).sum(axis=1)
        spread = (shares * logarithms**2).sum(axis=1) - mean**2
        value = -predicted[np.arange(len(labels)), labels].sum() + (slope - 1) ** 2 / 2
        return float(value), float((mean - at).sum() + slope - 1), float(spread.sum() + 1)

    slope, (value, gradient, curvature) = 1.0, loss(1.0)
    for _ in range(50):
        step = gradient / curvature
        while (candidate := loss(slope - step))[0] > value + 1e-9 and abs(step) > 1e-9:
            step /= 2
        slope, (value, gradient, curvature) = slope - step, candidate
        if abs(step) < 1e-7:
            break
    return float(slope)


def _a_byte(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., 0], sums[..., 1])


def _perplexity(sums: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.exp(_a_byte(sums))


_OF_NATS = sums_of(0, 2)
_METRICS: Mapping[str, TaskMetric] = {
    metric.name: metric
    for metric in (
        TaskMetric("log_loss", False, sums=_OF_NATS, of_sums=_a_byte, low=0.0),
        TaskMetric("bits_per_byte", False, sums=_OF_NATS, of_sums=lambda sums: _a_byte(sums) / math.log(2), low=0.0),
        TaskMetric("perplexity", False, sums=_OF_NATS, of_sums=_perplexity, low=1.0),
        TaskMetric(
            "accuracy", True, sums=sums_of(1, 3),
            of_sums=lambda sums: ratio(sums[..., 1], sums[..., 0]), low=0.0, high=1.0,
        ),
        CALIBRATION_ERROR,
    )
}  # fmt: skip
