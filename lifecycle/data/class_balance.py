"""Whether a rare class of the training rows is known to whoever declared the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.checks import CheckResult
from lifecycle.training_spec import ClassWeights

if TYPE_CHECKING:
    import pandas as pd

# Below this share of a class most batches of 20 rows hold none of it.
RARE = 0.05


def class_balance_check(labels: pd.Series, declared: str | ClassWeights | None) -> CheckResult:
    """Warns if the rarer class has under 5 % of the training rows and training.class_weights says nothing."""
    share = float(labels.mean()) if len(labels) else 0.0
    rarer, value = min((share, 1), (1 - share, 0))
    silent = declared is None and rarer < RARE
    evidence = f"label {value} has {rarer:.2%} of {len(labels)} training rows; training.class_weights: "
    return CheckResult(
        name="class_balance",
        status="fail" if silent else "pass",
        severity="warning",
        observed=rarer,
        threshold=RARE,
        evidence=evidence + ("not declared" if declared is None else str(declared)),
        fix="declare training.class_weights: balanced, {positive: …}, or none if that is meant" if silent else "",
    )
