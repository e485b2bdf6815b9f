"""L3.1: how much better a model looks on rows drawn at random than on rows that come later.

Quick trees are tested twice on the newest training rows: once having learned from older rows alone, and once from as
many rows of which some are of the same days. What the second claims beyond the first is what a random split hides: the
rows of a day lie in training and in test, and the day's weather is known by heart. Both are tested on the same rows, so
that neither a harder season nor a few hard days are taken for a gap. Under a split by time it is only told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "split_gap"
MOST_ROWS, NEWEST_SHARE, MINIMUM_ROWS = 12_000, 0.25, 400
FOLDS, ROUNDS, LEARNING_RATE = 3, 40, 0.2
# Between harmless months of flights the gap was at most 0.02; docs/decisions/0015.
GAP, STANDARD_ERRORS = 0.03, 2.5


def split_gap(
    rows: pd.DataFrame, features: tuple[str, ...], label: str, group: str, time: str, seed: int, *, by_time: bool
) -> Leak:
    """What learning from rows at random adds to the AUC on the newest training rows, with standard errors by group.

    Labels are 0 or 1: of other kinds an event of the label.
    """
    from trainworthy.lifecycle.tasks.binary import BINARY

    if not pd.api.types.is_datetime64_any_dtype(rows[time]):
        return _untold(f"{time} holds no times, so there is no later")
    generator = np.random.default_rng(seed)
    rows = rows.dropna(subset=[time])
    if len(rows) > MOST_ROWS:
        rows = rows.iloc[np.sort(generator.choice(len(rows), MOST_ROWS, replace=False))]
    later = _newest(rows[time])
    few = [BINARY.shortage(rows.loc[part, label], rows.loc[part, group], MINIMUM_ROWS // 4) for part in (later, ~later)]
    if len(rows) < MINIMUM_ROWS or any(few):
        return _untold(f"{len(rows)} rows, fewer than {MINIMUM_ROWS}" if len(rows) < MINIMUM_ROWS else max(few))
    fitted = _Trees(rows, features, label, seed)
    in_time, at_random = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    in_time[later] = fitted.predicted(np.flatnonzero(~later), np.flatnonzero(later))
    for tested in np.array_split(generator.permutation(np.flatnonzero(later)), FOLDS):
        untested = np.setdiff1d(np.arange(len(rows)), tested)
        at_random[tested] = fitted.predicted(generator.choice(untested, int((~later).sum()), replace=False), tested)
    try:
        return _judged(rows[label][later], rows[group][later], at_random[later], in_time[later], by_time)
    except EvaluationError as error:
        return _untold(f"no interval: {error.problem}")


def _newest(times: pd.Series) -> np.ndarray:
    """True for about NEWEST_SHARE of the rows. Rows of one time stay together: the last of a few batches is later."""
    cut = times.quantile(1 - NEWEST_SHARE)
    after = times > cut
    return (after if after.any() else times >= cut).to_numpy()


@dataclass(frozen=True)
class _Trees:
    """Quick trees on some of the rows."""

    rows: pd.DataFrame
    features: tuple[str, ...]
    label: str
    seed: int

    def predicted(self, training: np.ndarray, tested: np.ndarray) -> np.ndarray:
        """Probabilities of the tested rows, by trees that learned from the training rows; both by their places."""
        from threadpoolctl import threadpool_limits

        from trainworthy.lifecycle.tasks.baselines import MOST_TREE_CATEGORIES, tree_table
        from trainworthy.lifecycle.tasks.encoding import fit_encoding

        known, test = self.rows.iloc[training], self.rows.iloc[tested]
        encoding = fit_encoding(known, self.features, most_categories=MOST_TREE_CATEGORIES)
        categorical = [False] * len(encoding.numeric) + [True] * len(encoding.categories)
        options: dict[str, Any] = {
            "categorical_features": categorical, "early_stopping": False, "random_state": self.seed,
        }  # fmt: skip
        model = HistGradientBoostingClassifier(max_iter=ROUNDS, learning_rate=LEARNING_RATE, **options)
        # On so few rows threads only wait for each other: 12 CPU seconds instead of 2 on a busy machine.
        with threadpool_limits(1):
            model.fit(tree_table(encoding, known), known[self.label].to_numpy())
            return model.predict_proba(tree_table(encoding, test))[:, 1]


def _judged(labels: Any, groups: Any, at_random: np.ndarray, in_time: np.ndarray, by_time: bool) -> Leak:
    from trainworthy.lifecycle.tasks.binary import BINARY
    from trainworthy.lifecycle.tasks.metric import gain
    from trainworthy.lifecycle.tasks.probabilities import auc

    auc_gain = gain(BINARY.metrics["auc"], BINARY.checked_labels(labels), at_random, in_time, groups)
    gap, error = auc_gain.value, auc_gain.standard_error
    evidence = (
        f"quick trees have AUC {auc(labels, at_random):.3f} on the newest training rows if they learned from rows at "
        f"random, and {auc(labels, in_time):.3f} if from older ones alone: a gap of {gap:+.3f} ± "
        f"{STANDARD_ERRORS * error:.3f}"
    )
    hides = gap >= GAP and gap >= STANDARD_ERRORS * error
    if hides and not by_time:
        return Leak(
            taxon="L3.1", family=FAMILY, status="warning", observed=gap, threshold=GAP,
            evidence=f"{evidence}; the random part of the split flatters by about that", fix=fix_of(FAMILY),
        )  # fmt: skip
    full_evidence = f"{evidence}; the split by time keeps it out of the figures" if hides else evidence
    return Leak(taxon="L3.1", family=FAMILY, status="pass", observed=gap, threshold=GAP, evidence=full_evidence)


def _untold(why: str) -> Leak:
    return Leak(taxon="L3.1", family=FAMILY, status="not_applicable", evidence=why)
