"""What metrics with intervals cost: 327,000 rows in 365 groups, over all rows and 30 overlapping slices, one model.

For each kind of task every metric of it, with its 95 % interval by group. Metrics of rows and of sums together are one
figure, those that rank rows (AUC, average precision, medians, calibration errors) the other. scikit-learn's values
alone, without any interval, stand beside them. Targets: 1 and 10 CPU seconds, of binary and of a number.

Masks are measured apart: 1,000 of 256 × 256 pixels in five classes, the sums of each row from classes and from a
network's outputs (softmax, calibration, sums), and then every metric over all rows and the slices.

    make bench NAME=metrics          about a minute; ARGS=--short in seconds
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn import metrics as sklearn

from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.metric import TaskMetric, estimate
from trainworthy.lifecycle.tasks.segmentation import overlap_counts

ROWS, GROUPS, SLICES = 327_000, 365, 30
SHORT_ROWS, SHORT_SLICES = 4_000, 2
MASKS, SHORT_MASKS, SIDE = 1_000, 400, 256
TARGETS = {"sums_seconds": 1.0, "all_seconds": 10.0}
KINDS = {
    "binary": Target(),
    "number": Target(kind="regression"),
    "quantiles": Target(kind="regression", quantiles=(0.1, 0.5, 0.9)),
    "ten classes": Target(kind="multiclass", classes=tuple(range(10))),
    "ten labels": Target(kind="multilabel", classes=tuple("abcdefghij")),
}


class Drawn(NamedTuple):
    """Labels, answers and groups of rows."""

    labels: np.ndarray
    answers: np.ndarray
    groups: np.ndarray


def main() -> None:
    """Measure each kind and print a table."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    rows, slices = (SHORT_ROWS, SHORT_SLICES) if short else (ROWS, SLICES)
    figures: dict[str, float] = {}
    print(f"{'kind':12} {'metrics':>8} {'rows and sums':>14} {'ranking':>8} {'all':>6}   CPU seconds")
    for name, target in KINDS.items():
        kind, drawn = kind_of(target), draw(name, rows)
        masks = [np.ones(rows, dtype=bool), *_slices(rows, slices)]
        ranking = [metric for metric in kind.metrics.values() if metric.left_out is not None]
        others = [metric for metric in kind.metrics.values() if metric.left_out is None]
        sums, ranked = (_seconds(kind, some, drawn, masks) for some in (others, ranking))
        figures[f"{name.replace(' ', '_')}_sums_seconds"] = sums
        figures[f"{name.replace(' ', '_')}_all_seconds"] = sums + ranked
        print(f"{name:12} {len(kind.metrics):8} {sums:14.2f} {ranked:8.2f} {sums + ranked:6.2f}")
    figures |= _of_masks(SHORT_MASKS if short else MASKS, slices)
    figures["scikit_learn_seconds"] = _by_scikit_learn(draw("binary", rows), slices)
    print(f"scikit-learn's values of binary without intervals: {figures['scikit_learn_seconds']:.2f} CPU seconds")
    targets = {f"{kind}_{name}": limit for kind in ("binary", "number") for name, limit in TARGETS.items()}
    targets |= {"masks_from_classes_seconds": 1.0, "masks_from_outputs_seconds": 10.0}
    finish("metrics", figures, targets, short=short)


def _of_masks(rows: int, slices: int) -> dict[str, float]:
    """CPU seconds of masks' metrics; targets are of 1,000."""
    kind, part = kind_of(Target(kind="segmentation", classes=tuple("abcde"))), 50
    random = np.random.default_rng(0)
    seconds, kept = dict.fromkeys(("classes", "outputs", "metrics"), 0.0), []
    for _ in range(rows // part):
        coarse = random.integers(0, 5, (part, SIDE // 8, SIDE // 8)).astype(np.uint8)
        masks = coarse.repeat(8, axis=1).repeat(8, axis=2)
        outputs = random.normal(size=(part, 5, SIDE, SIDE)).astype(np.float32)
        outputs += 2 * (masks[:, None] == np.arange(5, dtype=np.uint8)[:, None, None])
        predicted, started = outputs.argmax(axis=1), time.process_time()
        for mask, answer in zip(masks, predicted, strict=True):
            overlap_counts(mask.reshape(-1), answer.reshape(-1), 5)
        seconds["classes"] += time.process_time() - started
        started = time.process_time()
        raw = softmax(outputs, axis=1)
        answers = kind.calibrated(kind.of_predict(raw, whole=True), {"slope": 1.1, "intercepts": [0.0] * 5})
        kept.append(kind.statistics(masks, answers))
        seconds["outputs"] += time.process_time() - started
    statistics, groups = np.concatenate(kept), np.sort(random.integers(0, GROUPS, rows))
    started = time.process_time()
    for chosen in (np.ones(rows, dtype=bool), *_slices(rows, slices)):
        for metric in kind.metrics.values():
            estimate(metric, groups[chosen], statistics[chosen], groups[chosen])
    seconds["metrics"] = time.process_time() - started
    told = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
    print(f"{rows} masks of {SIDE} × {SIDE} in five classes: from {told} CPU seconds")
    outputs_seconds = seconds["outputs"] + seconds["metrics"]
    return {"masks_from_classes_seconds": seconds["classes"], "masks_from_outputs_seconds": outputs_seconds}


def draw(name: str, rows: int) -> Drawn:
    """Rows whose groups differ in size and level, as days do."""
    random = np.random.default_rng(0)
    groups = np.sort(random.integers(0, GROUPS, rows))
    level = random.normal(size=GROUPS)[groups] * 0.3
    score = random.normal(size=rows) + level
    if name == "binary":
        probabilities = 1 / (1 + np.exp(1.3 - score))
        return Drawn((random.random(rows) < probabilities).astype(float), probabilities, groups)
    if name == "ten labels":
        # One of them in half of the rows, the last in one of a hundred.
        logits = random.normal(size=(rows, 10)) + score[:, None] - np.linspace(0, 5, 10)
        answers = 1 / (1 + np.exp(-logits))
        return Drawn((random.random(answers.shape) < answers).astype(float), answers, groups)
    if name == "ten classes":
        logits = random.normal(size=(rows, 10)) + score[:, None] * np.linspace(-1, 1, 10)
        answers = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (random.random(rows)[:, None] > answers.cumsum(axis=1)).sum(axis=1).clip(0, 9)
        return Drawn(labels, answers, groups)
    labels = np.exp(score + random.normal(size=rows))
    if name == "number":
        return Drawn(labels, np.exp(score), groups)
    return Drawn(labels, np.exp(score)[:, None] * np.array([0.3, 1.0, 3.6]), groups)


def _slices(rows: int, count: int) -> list[np.ndarray]:
    """Overlapping parts of 5 to 50 % of the rows."""
    random = np.random.default_rng(1)
    return [random.random(rows) < share for share in np.linspace(0.05, 0.5, count)]


def _seconds(kind: Kind, metrics: list[TaskMetric], drawn: Drawn, masks: list[np.ndarray]) -> float:
    """CPU seconds of all metrics over all masks, the check of the answers included."""
    started = time.process_time()
    for mask in masks:
        labels, answers = kind.checked(drawn.labels[mask], drawn.answers[mask])
        for metric in metrics:
            # Of few rows no precision of a rare label is defined without each of the groups.
            with contextlib.suppress(EvaluationError):
                estimate(metric, labels, answers, drawn.groups[mask])
    return time.process_time() - started


def _by_scikit_learn(drawn: Drawn, slices: int) -> float:
    functions: Mapping[str, Callable[..., float]] = {
        "log_loss": sklearn.log_loss, "brier": sklearn.brier_score_loss, "auc": sklearn.roc_auc_score,
        "average_precision": sklearn.average_precision_score,
    }  # fmt: skip
    started = time.process_time()
    for mask in (np.ones(len(drawn.labels), dtype=bool), *_slices(len(drawn.labels), slices)):
        for function in functions.values():
            function(drawn.labels[mask], drawn.answers[mask])
    return time.process_time() - started


if __name__ == "__main__":
    main()
