"""Whether a rare class of the training rows is known to whoever declared the training."""

from __future__ import annotations

import numpy as np
import pandas as pd

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.tasks import Kind

# Below this share of a class most batches of 20 rows hold none of it.
RARE = 0.05
_CHOICES = {False: "balanced, {positive: …}, or none", True: "balanced, or none"}


def class_balance_check(labels: pd.Series, declared: str, kind: Kind) -> CheckResult:
    """Warns if the rarest class has under 5 % of the training rows, or half its fair share, and nothing is `declared`.

    Where a row may have several it warns of those that no row has: of rare ones nothing is to be declared. `labels` are
    the label's column; numbers have no classes.
    """
    if not kind.classes or not kind.declares_classes:
        evidence = f"the label is a {'text' if kind.classes else 'number'} and has no classes"
        return CheckResult(name="class_balance", status="not_applicable", severity="warning", evidence=evidence)
    counts = (
        kind.class_rows(kind.checked_labels(labels.to_numpy())) if len(labels) else np.zeros(len(kind.classes), int)
    )
    return _of_classes(counts, len(labels), declared, kind) if kind.row_classes else _of_labels(counts, labels, kind)


def _of_classes(counts: np.ndarray, rows: int, declared: str, kind: Kind) -> CheckResult:
    # Of equal shares a later class is the rarer one, as the label 1 of two.
    place = len(counts) - 1 - int(np.argmin(counts[::-1]))
    rarer, value = (float(counts[place]) / rows if rows else 0.0), kind.classes[place]
    # Twenty classes have 5 % each where they are balanced.
    bound = min(RARE, 1 / (2 * len(counts)))
    silent = not declared and rarer < bound
    evidence = f"label {value} has {rarer:.2%} of {rows} training rows; "
    return CheckResult(
        name="class_balance",
        status="fail" if silent else "pass",
        severity="warning",
        observed=rarer,
        threshold=bound,
        evidence=evidence + (declared or "training.class_weights: not declared"),
        fix=f"declare training.class_weights: {_CHOICES[len(counts) > 2]} if that is meant" if silent else "",
    )


def _of_labels(counts: np.ndarray, labels: pd.Series, kind: Kind) -> CheckResult:
    rows = len(labels)
    absent = [str(name) for name, count in zip(kind.classes, counts, strict=True) if not count]
    evidence = f"of {rows} training rows {kind.in_words(labels)}" if rows else "no training rows"
    if absent:
        evidence = f"no training row has {', '.join(absent[:5])}; {evidence}"
    return CheckResult(
        name="class_balance",
        status="fail" if absent else "pass",
        severity="warning",
        observed=float(counts.min()) / rows if rows else 0.0,
        evidence=evidence,
        fix="leave these out of the label's classes: nothing can be learned of them" if absent else "",
    )
