"""Simple models on the raw feature columns, which a network has to beat to be worth its cost.

prior: the best constant answer. linear: logistic regression or ridge on one-hot categories and standardised numbers
with missing indicators. gradient_boosting: scikit-learn's histogram trees. Which of them a kind of task asks, and what
an answer is, says the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError, did_you_mean
from trainworthy.lifecycle.tasks.encoding import Encoding, fit_encoding
from trainworthy.lifecycle.tasks.kind import BASELINES, Kind

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.tasks.kind import Predictor

# scikit-learn's trees take codes below 255; one of them is for rare and unseen categories.
MOST_TREE_CATEGORIES = 254


def fit_baselines(
    training: pd.DataFrame, feature_columns: Sequence[str], label: str, names: Sequence[str], seed: int, kind: Kind
) -> dict[str, Predictor]:
    """The named baselines fitted on the training rows; equal rows and seed give equal answers.

    Each predictor takes rows with the feature columns (a label column is ignored) and gives answers of the kind.
    Columns may hold numbers, text, booleans, times and nulls (encoding.py says how each is used). Raises
    EvaluationError for an unknown name, a missing column, a label among the features or labels that nothing can be
    learned from.
    """
    for name in names:
        if name not in BASELINES:
            raise EvaluationError("no baseline of that name", value=name, fix=did_you_mean(name, BASELINES))
    if label in feature_columns or label not in training.columns:
        raise EvaluationError(
            "the label must be a column of the training rows and no feature", value=label, fix="correct the roles"
        )
    labels = kind.checked_labels(training[label])
    return {name: kind.fit_baseline(name, training, list(feature_columns), labels, seed) for name in names}


def logistic_regression(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    """Probabilities of the label values that occur, in rising order."""
    from sklearn.linear_model import LogisticRegression

    model, design = LogisticRegression(C=1.0, solver="lbfgs", max_iter=1000), _fit_design(training, columns)
    model.fit(design(training), labels)
    return lambda rows: model.predict_proba(design(rows))


def logistic_regressions(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    """Probability of each of several labels `(N, labels)` of 0 and 1, each of which occurs and is absent somewhere."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    design = _fit_design(training, columns)
    table = design(training)
    models = [LogisticRegression(C=1.0, solver="lbfgs", max_iter=1000).fit(table, column) for column in labels.T]

    def answers(rows: pd.DataFrame) -> np.ndarray:
        table = design(rows)
        return np.stack([model.predict_proba(table)[:, 1] for model in models], axis=1)

    return answers


def ridge(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    """Numbers `(N,)`."""
    from sklearn.linear_model import Ridge

    model, design = Ridge(alpha=1.0), _fit_design(training, columns)
    model.fit(design(training), labels)
    return lambda rows: model.predict(design(rows))


def boosted_classes(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    """Probabilities of the label values that occur, in rising order."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    encoding, options = _trees(training, columns, seed)
    model = HistGradientBoostingClassifier(**options)
    model.fit(tree_table(encoding, training), labels)
    return lambda rows: model.predict_proba(tree_table(encoding, rows))


def boosted_labels(training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int) -> Predictor:
    """As logistic_regressions, of trees of their own each."""
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier

    encoding, options = _trees(training, columns, seed)
    table = tree_table(encoding, training)
    models = [HistGradientBoostingClassifier(**options).fit(table, column) for column in labels.T]

    def answers(rows: pd.DataFrame) -> np.ndarray:
        table = tree_table(encoding, rows)
        return np.stack([model.predict_proba(table)[:, 1] for model in models], axis=1)

    return answers


def boosted_numbers(
    training: pd.DataFrame, columns: list[str], labels: np.ndarray, seed: int, quantiles: tuple[float, ...] = ()
) -> Predictor:
    """Numbers `(N,)`, or rising quantiles `(N, quantiles)`, of trees of their own each."""
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor

    encoding, options = _trees(training, columns, seed)
    losses: list[dict[str, Any]] = [{"loss": "quantile", "quantile": level} for level in quantiles]
    table = tree_table(encoding, training)
    models = [HistGradientBoostingRegressor(**options, **loss).fit(table, labels) for loss in losses or [{}]]

    def answers(rows: pd.DataFrame) -> np.ndarray:
        table = tree_table(encoding, rows)
        predictions = np.stack([model.predict(table) for model in models], axis=1)
        return np.sort(predictions, axis=1) if quantiles else predictions[:, 0]

    return answers


def _trees(training: pd.DataFrame, columns: list[str], seed: int) -> tuple[Encoding, dict[str, Any]]:
    """The encoding of the columns for trees, and the trees' options."""
    encoding = fit_encoding(training, columns, most_categories=MOST_TREE_CATEGORIES)
    categorical = [False] * len(encoding.numeric) + [True] * len(encoding.categories)
    # Early stopping would take its validation rows at random, across time.
    return encoding, {"categorical_features": categorical, "early_stopping": False, "random_state": seed}


def _fit_design(training: pd.DataFrame, columns: list[str]) -> Callable[[pd.DataFrame], Any]:
    """What turns rows into the design of a linear model, by the mean and spread of the training rows."""
    import numpy as np

    encoding = fit_encoding(training, columns)
    numbers, _ = encoding.encode(training)
    known = ~np.isnan(numbers)
    count = np.maximum(known.sum(0), 1)
    mean = np.where(known, numbers, 0.0).sum(0) / count
    scale = np.sqrt(np.where(known, (numbers - mean) ** 2, 0.0).sum(0) / count)
    scale[scale == 0] = 1.0
    # An indicator that is 0 in all training rows would get the weight 0.
    missing = np.flatnonzero(count < len(training))
    return lambda rows: _design(encoding, rows, mean, scale, missing)


def _design(encoding: Encoding, rows: pd.DataFrame, mean: np.ndarray, scale: np.ndarray, missing: np.ndarray) -> Any:
    """Standardised numbers (missing → mean), indicators of the `missing` columns and one-hot codes, shape `(N, F)`."""
    import numpy as np
    from scipy.sparse import csr_matrix

    numbers, codes = encoding.encode(rows)
    unknown = np.isnan(numbers)
    dense = np.hstack([np.where(unknown, 0.0, (numbers - mean) / scale), unknown[:, missing]])
    starts = dense.shape[1] + np.cumsum([0, *encoding.sizes])
    # Each row has as many entries: numbers, indicators, and exactly one 1 for each categorical column.
    values = np.hstack([dense, np.ones(codes.shape)])
    places = np.broadcast_to(np.arange(dense.shape[1]), dense.shape)
    columns = np.hstack([places, codes + starts[:-1]], dtype=np.int32)
    ends = np.arange(len(rows) + 1) * values.shape[1]
    design = csr_matrix((values.ravel(), columns.ravel(), ends), shape=(len(rows), int(starts[-1])))
    design.eliminate_zeros()
    return design


def tree_table(encoding: Encoding, rows: pd.DataFrame) -> np.ndarray:
    """Numbers and codes side by side, as scikit-learn's trees take them."""
    import numpy as np

    return np.hstack(encoding.encode(rows))
