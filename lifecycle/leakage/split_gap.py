"""L3.1: how much better a model looks on rows drawn at random than on rows that come later.

The same quick trees learn from as many training rows twice: once tested on rows drawn among them, once on the newest.
What the first claims and the second does not show is drift that a random split hides: rows of the same day are
in training and in test, and the day's weather is known by heart. Under a split by time it is only told.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lifecycle.errors import EvaluationError
from lifecycle.leakage.finding import Leak
from lifecycle.records import Estimate

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

FAMILY = "split_gap"
MOST_ROWS, NEWEST_SHARE, MINIMUM_ROWS = 12_000, 0.25, 400
ROUNDS, LEARNING_RATE = 40, 0.2
# Between harmless months of flights the gap was at most 0.02; docs/decisions/0015.
GAP, STANDARD_ERRORS = 0.03, 2.5
_FIX = "split by time (split.by: time), which asks the model what it will be asked: rows that come later"


def split_gap(
    rows: pd.DataFrame, features: tuple[str, ...], label: str, group: str, time: str, seed: int, *, by_time: bool
) -> Leak:
    """AUC on rows at random less AUC on later rows, both of training rows, with standard errors by group."""
    import numpy as np
    import pandas as pd

    if not pd.api.types.is_datetime64_any_dtype(rows[time]):
        return _untold(f"{time} holds no times, so there is no later")
    generator = np.random.default_rng(seed)
    rows = rows.dropna(subset=[time])
    if len(rows) > MOST_ROWS:
        rows = rows.iloc[np.sort(generator.choice(len(rows), MOST_ROWS, replace=False))]
    if len(rows) < MINIMUM_ROWS:
        return _untold(f"{len(rows)} rows with a time, fewer than {MINIMUM_ROWS}")
    later = _newest(rows[time])
    drawn = np.zeros(len(rows), dtype=bool)
    drawn[generator.choice(len(rows), int(later.sum()), replace=False)] = True
    for name, part in (("later", later), ("earlier", ~later), ("tested", drawn), ("other", ~drawn)):
        if rows.loc[part, label].nunique() < 2:
            return _untold(f"the {int(part.sum())} {name} rows hold fewer than two labels")
    try:
        at_random = _tested(rows, drawn, features, label, group, seed)
        in_time = _tested(rows, later, features, label, group, seed)
    except EvaluationError as error:
        return _untold(f"no interval: {error.problem}")
    return _judged(at_random, in_time, by_time=by_time)


def _newest(times: pd.Series) -> np.ndarray:
    """True for about NEWEST_SHARE of the rows. Rows of one time stay together: the last of a few batches is later."""
    cut = times.quantile(1 - NEWEST_SHARE)
    after = times > cut
    return (after if after.any() else times >= cut).to_numpy()


def _tested(
    rows: pd.DataFrame, tested: np.ndarray, features: tuple[str, ...], label: str, group: str, seed: int
) -> Estimate:
    """AUC of quick trees on the tested rows, fitted on the others."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    from lifecycle.evaluation.baselines import MOST_TREE_CATEGORIES, tree_table
    from lifecycle.evaluation.encoding import fit_encoding
    from lifecycle.evaluation.interval import grouped_estimate

    training, test = rows[~tested], rows[tested]
    encoding = fit_encoding(training, features, most_categories=MOST_TREE_CATEGORIES)
    categorical = [False] * len(encoding.numeric) + [True] * len(encoding.categories)
    options: dict[str, Any] = {"categorical_features": categorical, "early_stopping": False, "random_state": seed}
    model = HistGradientBoostingClassifier(max_iter=ROUNDS, learning_rate=LEARNING_RATE, **options)
    # On so few rows threads only wait for each other: 12 CPU seconds instead of 2 on a busy machine.
    with threadpool_limits(1):
        model.fit(tree_table(encoding, training), training[label].to_numpy())
        predicted = model.predict_proba(tree_table(encoding, test))[:, 1]
    return grouped_estimate("auc", test[label].to_numpy(), predicted, test[group])


def _judged(at_random: Estimate, in_time: Estimate, *, by_time: bool) -> Leak:
    gap = at_random.value - in_time.value
    error = math.hypot(at_random.standard_error, in_time.standard_error)
    evidence = (
        f"quick trees have AUC {at_random.value:.3f} on training rows drawn at random and {in_time.value:.3f} on the "
        f"newest: a gap of {gap:+.3f} ± {STANDARD_ERRORS * error:.3f}"
    )
    hides = gap >= GAP and gap >= STANDARD_ERRORS * error
    if hides and not by_time:
        return Leak(
            taxon="L3.1", family=FAMILY, status="warning", observed=gap, threshold=GAP,
            evidence=f"{evidence}; the random part of the split flatters by about that", fix=_FIX,
        )  # fmt: skip
    told = f"{evidence}; the split by time keeps it out of the figures" if hides else evidence
    return Leak(taxon="L3.1", family=FAMILY, status="pass", observed=gap, threshold=GAP, evidence=told)


def _untold(why: str) -> Leak:
    return Leak(taxon="L3.1", family=FAMILY, status="not_applicable", evidence=why)
