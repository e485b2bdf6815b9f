"""Kind segmentation: the label is a mask, a class for each pixel of a picture; the answer is a probability of each
class at each pixel, `(N, classes, height, width)` from predict.

Masks are judged in two ways. While a model is trained, and wherever rows are compared by their labels, a mask stands
for a grid of GRID × GRID of its pixels, which are evenly spread: so much is enough for means over rows, and needs no
picture to be opened twice. It is what the snapshot stores as the label. The benchmark is judged by all pixels: of each
row the statistics of `statistic_names` are kept, and no pixel. Where answers have another size than the mask they are
enlarged or reduced to it, by the nearest pixel.

IoU and Dice are pooled: the pixels of all rows are counted together, so that large objects weigh more. What ends in
`_per_picture` is computed of each row by itself, and the mean taken. A class that neither masks nor answers hold, of
all rows or of the one, is left out of means over classes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.input_checks import same_length
from trainworthy.lifecycle.tasks.interval import few_groups, spread_problem
from trainworthy.lifecycle.tasks.kind import COPY_OF_CLASSES, Event
from trainworthy.lifecycle.tasks.metric import TaskMetric, mean_of_known, ratio
from trainworthy.lifecycle.tasks.multiclass import MOST_EVENTS, SUM_TOLERANCE, fit_slope_and_intercepts
from trainworthy.lifecycle.tasks.places import (
    CALIBRATION_ERROR,
    CALIBRATION_NAMES,
    UNSCORED,
    Places,
    calibration_statistics,
    sums_of,
)
from trainworthy.lifecycle.tasks.probabilities import logarithms

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.tasks.kind import Predictor

# Pixels in each direction that a mask is judged by while training.
GRID = 32
# Pixels that a calibration is fitted on: one of 200,000 took 0.9 s with five classes, and more change no digit shown.
CALIBRATION_PIXELS = 200_000
# Masks of the training rows that class sizes are told from in strata: quarters by the share of the first class.
STRATA = 4


class Segmentation(Places):
    """A label of one class for each pixel."""

    name = "segmentation"
    answers = "probabilities of pixels"
    words = Words(
        prior="share of each class",
        linear="logistic regression on pixels",
        constant="always predicting the training rows' share of each class at every pixel",
        a_row="nats a pixel",
        predicted="mean probability of the predicted class of a pixel",
        observed="share of pixels of that class",
        familiar=(("mean_iou", "predicted and true areas have {share} of their union in common, mean over classes"),),
    )
    why_unfit = "and a mask holds many (kind: segmentation); weigh pixels in loss_fn instead"
    copy = COPY_OF_CLASSES
    loss, score = "log_loss", "mean_iou"
    per_class = ("iou", "dice", "recall", "precision")
    reported = (
        "log_loss", "brier", "mean_iou", "mean_iou_per_picture", "dice", "pixel_accuracy", "calibration_error",
    )  # fmt: skip
    sliced = ("log_loss", "mean_iou")

    def __init__(self, classes: tuple[Any, ...]) -> None:
        self.classes = classes

    @property
    def answer_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.classes)

    @property
    def predict_fix(self) -> str:
        count = len(self.classes)
        return (
            f"give a probability of each of the {count} classes at each pixel, shape (N, {count}, height, width), for "
            "example by softmax(dim=1)"
        )

    @property
    def answer_shape(self) -> tuple[int, ...]:
        return (GRID, GRID, len(self.classes))

    @property
    def statistic_names(self) -> tuple[str, ...]:
        """A row's mean loss and Brier score, its pixels; of each class the pixels of the mask, of the answer and of
        both; of each bin of the answered class's probability its pixels, those that are right, and the sum."""
        counts = tuple(f"{what}[{name}]" for what in ("mask", "answer", "both") for name in self.answer_names)
        return ("log_loss", "brier", "pixels", *counts, *CALIBRATION_NAMES)

    @property
    def drifting(self) -> tuple[str, ...]:
        """Pixels of each class in the answers."""
        return tuple(f"answer[{name}]" for name in self.answer_names)

    @property
    def metrics(self) -> Mapping[str, TaskMetric]:
        return self._metrics

    @cached_property
    def _metrics(self) -> Mapping[str, TaskMetric]:
        """Of statistics `(N, K)`: losses, shares of pixels, overlaps over all classes and of one."""
        metrics = [
            TaskMetric("log_loss", False, rows=lambda _, statistics: statistics[:, 0], low=0.0),
            TaskMetric("brier", False, rows=lambda _, statistics: statistics[:, 1], low=0.0),
            self._of_counts("pixel_accuracy", _accuracy),
            self._of_counts("mean_iou", _mean_iou),
            self._of_counts("dice", _mean_dice),
            TaskMetric("mean_iou_per_picture", True, rows=self._by_row(_mean_iou), low=0.0, high=1.0),
            TaskMetric("dice_per_picture", True, rows=self._by_row(_mean_dice), low=0.0, high=1.0),
            CALIBRATION_ERROR,
        ]
        for place, name in enumerate(self.answer_names):
            metrics += [
                self._of_counts(f"{metric}[{name}]", lambda counts, of=of, place=place: of(counts)[..., place])
                for metric, of in (("iou", _ious), ("dice", _dices), ("recall", _recalls), ("precision", _precisions))
            ]
        return {metric.name: metric for metric in metrics}

    def _of_counts(self, name: str, formula: Callable[[np.ndarray], np.ndarray]) -> TaskMetric:
        """A metric of the three counts of each class, (..., 3, classes), over the pixels of all rows."""
        count = len(self.classes)

        def of_sums(sums: np.ndarray) -> np.ndarray:
            return formula(sums.reshape(*sums.shape[:-1], 3, count))

        last = 3 + 3 * count
        return TaskMetric(
            name, True, sums=sums_of(3, last), of_sums=of_sums, low=0.0, high=1.0
        )  # fmt: skip

    def _by_row(self, formula: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        count = len(self.classes)
        return lambda _, statistics: formula(statistics[:, 3 : 3 + 3 * count].reshape(-1, 3, count))

    def class_rows(self, labels: np.ndarray) -> np.ndarray:
        """How many rows have each class, a pixel as its part of a row."""
        return self._shares(labels).sum(axis=0)

    def targets(self, truth: np.ndarray) -> np.ndarray:
        """Places among the classes, int64 `(N, height, width)`."""
        return truth.astype("int64")

    def truth(self, values: Any) -> np.ndarray:
        """The masks of files, `(N, height, width)` uint8; labels of the grid as they are. Raises EvaluationError."""
        import numpy as np

        from trainworthy.lifecycle.tasks.masks import read_masks

        values = np.asarray(values)
        return self.checked_labels(values) if values.ndim > 1 else read_masks(values.tolist(), len(self.classes))

    def column(self, masks: np.ndarray) -> np.ndarray:
        """What the snapshot stores of masks (N, height, width): a text of each, `(N,)`."""
        import numpy as np

        grid = _resized(masks, GRID, GRID).astype(np.uint8)
        return np.array([base64.b64encode(mask.tobytes()).decode() for mask in grid], dtype=object)

    def checked_labels(self, labels: Any) -> np.ndarray:
        """Places among the classes on the grid, uint8 `(N, GRID, GRID)`, of texts of `column` or of masks."""
        import numpy as np

        masks = np.asarray(labels)
        if not len(masks):
            raise EvaluationError("labels must have shape (N,) with N >= 1", value=masks.shape, fix="give one a row")
        if masks.ndim == 1:
            masks = _from_texts(masks)
        if masks.ndim != 3:
            fix = "give a mask of one class a pixel for each row"
            raise EvaluationError("masks must have shape (N, height, width)", value=masks.shape, fix=fix)
        masks = _resized(masks, GRID, GRID)
        wrong = ~np.isin(masks, np.arange(len(self.classes)))
        if wrong.any():
            raise EvaluationError(
                f"{int(wrong.sum())} of {masks.size} pixels are no place among the {len(self.classes)} classes",
                value=float(masks[wrong][0]),
                fix="name every class in contract.yaml (label: classes), in the order of the pixels' values",
            )
        return masks.astype(np.uint8)

    def of_predict(self, raw: Any, *, whole: bool = False) -> np.ndarray:
        """Probabilities `(N, height, width, classes)` of what predict gives: on the grid in float64, or at all pixels.

        Raises EvaluationError.
        """
        import numpy as np

        raw = np.asarray(raw)
        if raw.ndim != 4 or raw.shape[1] != len(self.classes):
            raise EvaluationError(
                f"each pixel needs {len(self.classes)} probabilities, one of each class",
                value=raw.shape,
                fix="let predict() give shape (N, classes, height, width), in the order of the contract's classes",
            )
        answers = np.moveaxis(raw, 1, 3)
        return answers if whole else np.ascontiguousarray(_resized(answers, GRID, GRID), dtype=np.float64)

    def checked(self, labels: Any, answers: Any) -> tuple[np.ndarray, np.ndarray]:
        """On the grid."""
        import numpy as np

        labels, answers = self.checked_labels(labels), np.asarray(answers, dtype=np.float64)
        same_length(labels, answers)
        self._check_probabilities(answers)
        return labels, answers

    def _check_probabilities(self, answers: np.ndarray) -> None:
        import numpy as np

        if answers.ndim != 4 or answers.shape[3] != len(self.classes):
            fix = "let predict() give shape (N, classes, height, width), in the order of the contract's classes"
            raise EvaluationError("answers are no probabilities of classes at pixels", value=answers.shape, fix=fix)
        sums = answers.sum(axis=3)
        wrong = ~((answers.min(axis=3) >= 0) & (np.abs(sums - 1) <= SUM_TOLERANCE))
        if wrong.any():
            raise EvaluationError(
                f"the answers of {int(wrong.sum())} of {wrong.size} pixels are no probabilities that add up to 1",
                value=answers[wrong][0].round(4).tolist(),
                fix="let predict() give the softmax of the outputs over the classes: softmax(dim=1)",
            )

    def aligned(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Probabilities `(N, height, width, classes)` of the masks' size."""
        return _resized(answers, truth.shape[1], truth.shape[2])

    def statistics(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """`statistic_names` of each row, float64 `(N, K)`, of masks (N, h, w) and probabilities (N, ..., classes).

        Raises EvaluationError where answers are no probabilities.
        """
        import numpy as np

        same_length(truth, answers)
        return np.stack([self._of_row(mask, answer) for mask, answer in zip(truth, answers, strict=True)])

    def _of_row(self, mask: np.ndarray, answer: np.ndarray) -> np.ndarray:
        import numpy as np

        count = len(self.classes)
        answer = _resized(answer[None], *mask.shape)[0].reshape(-1, count)
        self._check_row(answer)
        mask = mask.reshape(-1).astype(np.int64)
        predicted = answer.argmax(axis=1)
        of_mask = np.take_along_axis(answer, mask[:, None], axis=1)[:, 0]
        sure = np.take_along_axis(answer, predicted[:, None], axis=1)[:, 0]
        right = predicted == mask
        losses = -logarithms(of_mask)
        square = np.einsum("pc,pc->p", answer, answer, optimize=False) - 2 * of_mask + 1
        return np.concatenate(
            [
                [losses.mean(dtype=np.float64), square.mean(dtype=np.float64), len(mask)],
                *overlap_counts(mask, predicted, count),
                *calibration_statistics(sure, right),
            ]
        )

    def _check_row(self, answer: np.ndarray) -> None:
        import numpy as np

        if not np.isfinite(answer).all():
            wrong = int((~np.isfinite(answer)).sum())
            raise EvaluationError("answers of pixels are not finite", value=wrong, fix=UNSCORED)
        self._check_probabilities(answer[None, None])

    def served(self, answers: np.ndarray) -> dict[str, Any]:
        """`mask`: the place of the most probable class at each pixel; `probability`: its mean over the pixels."""
        sure = answers.max(axis=3).mean(axis=(1, 2), dtype="float64")
        return {"mask": answers.argmax(axis=3).tolist(), "probability": sure.tolist()}

    def prior(self, labels: np.ndarray) -> np.ndarray:
        """The share of each class, at every pixel."""
        import numpy as np

        shares = np.bincount(labels.reshape(-1), minlength=len(self.classes)) / labels.size
        return np.broadcast_to(shares, (GRID, GRID, len(self.classes))).copy()

    def row_loss(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Mean over the grid's pixels of the negative logarithm of the class's probability, in nats."""
        import numpy as np

        of_mask = np.take_along_axis(answers, labels[..., None].astype(np.int64), axis=3)
        return -logarithms(of_mask).mean(axis=(1, 2, 3))

    def shortage(self, labels: Any, groups: Any, minimum_rows: int = 1) -> str:
        """Two classes must each lie in two groups, so that no group alone holds what the others differ from."""
        import numpy as np

        labels = self.checked_labels(labels)
        reason, codes = few_groups(labels, groups, minimum_rows)
        if reason:
            return reason
        here = self._shares(labels) > 0
        spread = [place for place in range(len(self.classes)) if len(np.unique(codes[here[:, place]])) > 1]
        return "" if len(spread) > 1 else spread_problem(len(spread))

    def one_valued(self, labels: Any) -> str:
        labels = self.checked_labels(labels)
        if labels.min() == labels.max():
            return f"all pixels are of one class ({self.classes[int(labels.flat[0])]})"
        return ""

    def _shares(self, labels: np.ndarray) -> np.ndarray:
        """Of each class in each row's mask, (N, classes)."""
        import numpy as np

        flat = labels.reshape(len(labels), -1)
        return np.stack([(flat == place).mean(axis=1) for place in range(len(self.classes))], axis=1)

    def strata(self, labels: Any) -> np.ndarray:
        """Quarters of the rows by how much of the picture the first class, usually the background, covers."""
        import numpy as np

        first = self._shares(self.checked_labels(labels))[:, 0]
        cuts = np.unique(np.quantile(first, np.arange(1, STRATA) / STRATA, method="inverted_cdf"))
        return np.searchsorted(cuts, first, side="left")

    def events(self, labels: np.ndarray) -> tuple[Event, ...]:
        """A class covers more of the picture than in the median of these rows; those that part the rows best first."""
        import numpy as np

        shares = self._shares(labels)
        cuts = np.median(shares, axis=0)
        uneven = np.abs((shares > cuts).mean(axis=0) - 0.5)
        varied = [int(place) for place in np.argsort(uneven, kind="stable") if np.ptp(shares[:, place]) > 0]
        return tuple(self._event(place, float(cuts[place])) for place in varied[:MOST_EVENTS] or [0])

    def _event(self, place: int, cut: float) -> Event:
        return Event(
            f"class {self.classes[place]} covers more than {cut:.1%}",
            lambda labels: self._shares(labels)[:, place] > cut,
            lambda answers: answers[..., place].mean(axis=(1, 2)),
        )

    def fit_calibration(self, labels: Any, answers: Any) -> dict[str, Any]:
        """One slope for all logarithms and one intercept a class, as of classes, on pixels that are evenly spread."""
        import numpy as np

        labels, answers = self.checked(labels, answers)
        chosen = np.unique(np.linspace(0, labels.size - 1, min(labels.size, CALIBRATION_PIXELS)).astype(np.int64))
        pixels = answers.reshape(-1, len(self.classes))[chosen]
        return fit_slope_and_intercepts(logarithms(pixels), labels.reshape(-1)[chosen].astype(np.int64))

    @property
    def uncalibrated(self) -> dict[str, Any]:
        return {"slope": 1.0, "intercepts": [0.0] * len(self.classes)}

    def fit_baseline(
        self, name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int
    ) -> Predictor:
        """The share of each class, or a model of each pixel by its colours, those around it and its place."""
        import numpy as np

        from trainworthy.lifecycle.tasks.pixels import pixel_model

        constant = self.prior(labels)
        predict = None if name == "prior" else pixel_model(name, training, columns, labels, len(self.classes), seed)
        if predict is None:
            return lambda rows: np.broadcast_to(constant, (len(rows), *constant.shape)).copy()
        return predict

    def fit_place_inputs(
        self, training: pd.DataFrame, columns: list[str], labels: np.ndarray
    ) -> tuple[tuple[str, ...], Callable[[pd.DataFrame], dict[str, np.ndarray]]]:
        """The colours of each picture on the grid."""
        from trainworthy.lifecycle.tasks.pixels import picture_columns, picture_grids

        pictures = picture_columns(training, columns)
        return tuple(pictures), lambda rows: {
            name: picture_grids(rows[name], GRID).transpose(0, 3, 1, 2) for name in pictures
        }

    def sample_labels(self, rows: int) -> np.ndarray:
        """Masks whose classes take turns, another one at the corner of each."""
        return self.sample_truth(rows, (GRID, GRID))

    def sample_truth(self, rows: int, size: tuple[int, ...] | None) -> np.ndarray:
        import numpy as np

        height, width = size or (GRID, GRID)
        places = np.arange(rows)[:, None, None] + np.arange(height)[None, :, None] + np.arange(width)[None, None]
        return (places % len(self.classes)).astype(np.uint8)

    def in_words(self, labels: Any) -> str:
        shares = self._shares(self.checked_labels(labels)).mean(axis=0)
        rarest = int(shares.argmin())
        return (
            f"{len(self.classes)} classes, {self.classes[0]} {shares[0]:.1%} of the pixels, rarest "
            f"{self.classes[rarest]} {shares[rarest]:.1%}"
        )

    def target_state(self, labels: np.ndarray) -> dict[str, Any]:
        """The classes, so that the network knows how many outputs it has at each pixel."""
        return {"classes": list(self.classes)}


def overlap_counts(mask: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Of each class the pixels `(P,)` of the mask, of the answer and of both, (3, classes)."""
    import numpy as np

    cells = np.bincount(mask.astype(np.int64) * classes + predicted, minlength=classes**2).reshape(classes, classes)
    return np.stack([cells.sum(axis=1), cells.sum(axis=0), cells.diagonal()])


def _from_texts(texts: np.ndarray) -> np.ndarray:
    """What `column` made of masks, (N, GRID, GRID)."""
    import numpy as np

    try:
        parts = [np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8) for text in texts]
        return np.stack(parts).reshape(-1, GRID, GRID)
    except (TypeError, ValueError) as error:
        fix = "materialize the snapshot again"
        raise EvaluationError(f"the label column holds no masks: {error}", value=str(texts[0])[:40], fix=fix) from None


def _resized(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pictures `(N, h, w, ...)` of another height and width, by the nearest pixel; the same where they have it."""
    import numpy as np

    if values.shape[1:3] == (height, width):
        return values
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(np.int64)
        for new, old in ((height, values.shape[1]), (width, values.shape[2]))
    )
    return values[:, rows][:, :, columns]


def _ious(counts: np.ndarray) -> np.ndarray:
    mask, answer, both = (counts[..., at, :] for at in range(3))
    return ratio(both, mask + answer - both)


def _dices(counts: np.ndarray) -> np.ndarray:
    return ratio(2 * counts[..., 2, :], counts[..., 0, :] + counts[..., 1, :])


def _recalls(counts: np.ndarray) -> np.ndarray:
    return ratio(counts[..., 2, :], counts[..., 0, :])


def _precisions(counts: np.ndarray) -> np.ndarray:
    return ratio(counts[..., 2, :], counts[..., 1, :])


def _mean_iou(counts: np.ndarray) -> np.ndarray:
    return mean_of_known(_ious(counts))


def _mean_dice(counts: np.ndarray) -> np.ndarray:
    return mean_of_known(_dices(counts))


def _accuracy(counts: np.ndarray) -> np.ndarray:
    return ratio(counts[..., 2, :].sum(axis=-1), counts[..., 0, :].sum(axis=-1))
