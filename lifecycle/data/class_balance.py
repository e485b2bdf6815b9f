"""Whether a rare class of the training rows is known to whoever declared the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lifecycle.checks import CheckResult

if TYPE_CHECKING:
    import pandas as pd

# Below this share of a class most batches of 20 rows hold none of it.
RARE = 0.05
_CHOICES = {False: "balanced, {positive: …}, or none", True: "balanced, or none"}


def class_balance_check(labels: pd.Series, declared: str, classes: Sequence[Any]) -> CheckResult:
    """Warns if the rarest class has under 5 % of the training rows, or half its fair share, and nothing is `declared`.

    `labels` are places among `classes`; numbers have none.
    """
    import numpy as np

    if not classes:
        told = "the label is a number and has no classes"
        return CheckResult(name="class_balance", status="not_applicable", severity="warning", evidence=told)
    counts = np.bincount(labels.to_numpy(dtype=np.int64), minlength=len(classes))
    # Of equal shares a later class is the rarer one, as the label 1 of two.
    place = len(classes) - 1 - int(np.argmin(counts[::-1]))
    rarer, value = (float(counts[place]) / len(labels) if len(labels) else 0.0), classes[place]
    # Twenty classes have 5 % each where they are balanced.
    bound = min(RARE, 1 / (2 * len(classes)))
    silent = not declared and rarer < bound
    evidence = f"label {value} has {rarer:.2%} of {len(labels)} training rows; "
    return CheckResult(
        name="class_balance",
        status="fail" if silent else "pass",
        severity="warning",
        observed=rarer,
        threshold=bound,
        evidence=evidence + (declared or "training.class_weights: not declared"),
        fix=f"declare training.class_weights: {_CHOICES[len(classes) > 2]} if that is meant" if silent else "",
    )
