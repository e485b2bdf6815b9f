"""Whether a rare class of the training rows is known to whoever declared the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.checks import CheckResult

if TYPE_CHECKING:
    import pandas as pd

# Below this share of a class most batches of 20 rows hold none of it.
RARE = 0.05


def class_balance_check(labels: pd.Series, declared: str) -> CheckResult:
    """Warns if the rarer class has under 5 % of the training rows and nothing is `declared` of it."""
    share = float(labels.mean()) if len(labels) else 0.0
    rarer, value = min((share, 1), (1 - share, 0))
    silent = not declared and rarer < RARE
    evidence = f"label {value} has {rarer:.2%} of {len(labels)} training rows; "
    return CheckResult(
        name="class_balance",
        status="fail" if silent else "pass",
        severity="warning",
        observed=rarer,
        threshold=RARE,
        evidence=evidence + (declared or "training.class_weights: not declared"),
        fix="declare training.class_weights: balanced, {positive: …}, or none if that is meant" if silent else "",
    )
