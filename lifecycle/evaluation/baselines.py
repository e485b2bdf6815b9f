"""Simple models on the raw feature columns, which a network has to beat to be worth its cost.

prior: the training rows' share of positives. linear: logistic regression on one-hot categories and
standardised numbers with missing indicators. gradient_boosting: scikit-learn's histogram trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lifecycle.errors import EvaluationError, did_you_mean
from lifecycle.evaluation.encoding import Encoding, fit_encoding
from lifecycle.evaluation.metrics import checked_labels, require_both_classes

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    # Rows with the feature columns → probability of label 1, shape (N,).
    Predictor = Callable[[pd.DataFrame], np.ndarray]

# scikit-learn's trees take codes below 255; one of them is for rare and unseen categories.
MOST_TREE_CATEGORIES = 254


def fit_baselines(
    training: pd.DataFrame, feature_columns: Sequence[str], label: str, names: Sequence[str], seed: int
) -> dict[str, Predictor]:
    """The named baselines fitted on the training rows; equal rows and seed give equal predictions.

    Each predictor takes rows with the feature columns (a label column is ignored) and gives
    probabilities `(N,)`. Columns may hold numbers, text, booleans, times and nulls (encoding.py says
    how each is used). Raises EvaluationError for an unknown name, a missing column, a label among the
    features or labels of one class only.
    """
    known = {"prior": _prior, "linear": _linear, "gradient_boosting": _gradient_boosting}
    for name in names:
        if name not in known:
            raise EvaluationError("no baseline of that name", value=name, fix=did_you_mean(name, known))
    if label in feature_columns or label not in training.columns:
        raise EvaluationError(
            "the label must be a column of the training rows and no feature", value=label, fix="mend the columns' roles"
        )
    labels = checked_labels(training[label])
    require_both_classes(labels)
    columns = list(feature_columns)
    return {name: known[name](training, columns, labels, seed) for name in names}


def _prior(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    import numpy as np

    share = float(labels.mean())
    return lambda rows: np.full(len(rows), share)


def _linear(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    encoding = fit_encoding(training, columns)
    numbers, _ = encoding.encode(training)
    known = ~np.isnan(numbers)
    count = np.maximum(known.sum(0), 1)
    mean = np.where(known, numbers, 0.0).sum(0) / count
    scale = np.sqrt(np.where(known, (numbers - mean) ** 2, 0.0).sum(0) / count)
    scale[scale == 0] = 1.0
    model = LogisticRegression(C=1.0, solver="lbfgs", max_iter=1000)
    model.fit(_design(encoding, training, mean, scale), labels)
    return lambda rows: model.predict_proba(_design(encoding, rows, mean, scale))[:, 1]


def _design(encoding: Encoding, rows: pd.DataFrame, mean: np.ndarray, scale: np.ndarray) -> Any:
    """Standardised numbers (missing → mean), missing indicators and one-hot codes, shape `(N, F)`."""
    import numpy as np
    from scipy.sparse import csr_matrix, hstack

    numbers, codes = encoding.encode(rows)
    missing = np.isnan(numbers)
    dense = np.hstack([np.where(missing, 0.0, (numbers - mean) / scale), missing.astype(float)])
    starts = np.cumsum([0, *encoding.sizes])
    # Each row has exactly one 1 for each categorical column, so the sparse form can be written down.
    indptr = np.arange(len(rows) + 1) * codes.shape[1]
    one_hot = csr_matrix(
        (np.ones(codes.size), (codes + starts[:-1]).ravel(), indptr), shape=(len(rows), int(starts[-1]))
    )
    return hstack([csr_matrix(dense), one_hot], format="csr")


def _gradient_boosting(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    from sklearn.ensemble import HistGradientBoostingClassifier

    encoding = fit_encoding(training, columns, most_categories=MOST_TREE_CATEGORIES)
    categorical = [False] * len(encoding.numeric) + [True] * len(encoding.categories)
    # Early stopping would take its validation rows at random, across time.
    options: dict[str, Any] = {"categorical_features": categorical, "early_stopping": False, "random_state": seed}
    model = HistGradientBoostingClassifier(**options)
    model.fit(tree_table(encoding, training), labels)
    return lambda rows: model.predict_proba(tree_table(encoding, rows))[:, 1]


def tree_table(encoding: Encoding, rows: pd.DataFrame) -> np.ndarray:
    """Numbers and codes side by side, as scikit-learn's trees take them."""
    import numpy as np

    return np.hstack(encoding.encode(rows))
