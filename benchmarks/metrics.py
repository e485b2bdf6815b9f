"""What metrics with intervals cost: 327,000 rows in 365 groups, over all rows and 30 overlapping slices, one model.

For each kind of task every metric of it, with its 95 % interval by group. Metrics of rows and of sums together are one
figure, those that rank rows (AUC, average precision, medians, calibration errors) the other. scikit-learn's values
alone, without any interval, stand beside them. Targets: 1 and 10 CPU seconds, of binary and of a number.

    make bench NAME=metrics          about a minute; ARGS=--short in seconds
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from sklearn import metrics as sklearn

from benchmarks.result import arguments, begin, finish
from lifecycle.tasks import kind_of
from lifecycle.tasks.kind import Kind
from lifecycle.tasks.metric import TaskMetric, estimate
from lifecycle.tasks.target import Target

ROWS, GROUPS, SLICES = 327_000, 365, 30
SHORT_ROWS, SHORT_SLICES = 4_000, 2
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
    figures["scikit_learn_seconds"] = _by_scikit_learn(draw("binary", rows), slices)
    print(f"scikit-learn's values of binary without intervals: {figures['scikit_learn_seconds']:.2f} CPU seconds")
    targets = {f"{kind}_{name}": limit for kind in ("binary", "number") for name, limit in TARGETS.items()}
    finish("metrics", figures, targets, short=short)


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
