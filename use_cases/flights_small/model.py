"""The network for `flights_small`: standardised numbers and embeddings into a small MLP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

CATEGORICAL = ("carrier", "origin", "dest")
RARE = 0  # the index of unseen and rare categories


def fit_preprocessing(training: pd.DataFrame, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Frequent categories of each text column; centre and spread of each number, from the middle 98 % of its values."""
    minimum = hyperparameters["min_category_rows"]
    numeric = [name for name in training.columns if name not in CATEGORICAL]
    return {
        "categories": {name: _frequent(training[name], minimum) for name in CATEGORICAL},
        "numbers": {name: _centre_and_spread(training[name]) for name in numeric},
    }


def _frequent(column: pd.Series, minimum: int) -> list[str]:
    counts = column.astype("string").value_counts()
    return sorted(str(name) for name in counts.index[counts >= minimum])


def _centre_and_spread(column: pd.Series) -> list[float]:
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = values[~np.isnan(values)]
    if values.size == 0:
        return [0.0, 1.0]
    low, high = np.quantile(values, (0.01, 0.99))
    middle = values.clip(low, high)
    return [float(middle.mean()), float(middle.std()) or 1.0]


def to_tensors(rows: pd.DataFrame, preprocessing: Mapping[str, Any]) -> dict[str, Tensor]:
    """`numeric` `(N, F)` float32 in spreads, 0 where null; `missing` `(N, F)`; `categorical` `(N, C)` int64."""
    numbers = preprocessing["numbers"]
    raw = np.column_stack([rows[name].to_numpy(np.float64, na_value=np.nan) for name in numbers])
    centre, spread = np.array(list(numbers.values())).T
    missing = np.isnan(raw)
    # A wild value counts as ten spreads: beyond that it says nothing more.
    scaled = np.where(missing, 0.0, (raw - centre) / spread).clip(-10, 10)
    codes = [_codes(rows[name], names) for name, names in preprocessing["categories"].items()]
    return {
        "numeric": torch.from_numpy(scaled.astype(np.float32)),
        "missing": torch.from_numpy(missing.astype(np.float32)),
        "categorical": torch.from_numpy(np.column_stack(codes)),
    }


def _codes(column: pd.Series, names: list[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    known = {name: index for index, name in enumerate(names, start=RARE + 1)}
    return column.astype("string").map(known).to_numpy(dtype=np.float64, na_value=RARE).astype(np.int64)


class SmallNetwork(nn.Module):
    """Logit of a late arrival."""

    def __init__(self, preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> None:
        super().__init__()
        size, width = hyperparameters["embedding_dim"], hyperparameters["width"]
        names = preprocessing["categories"].values()
        self.embeddings = nn.ModuleList(nn.Embedding(len(one) + 1, size) for one in names)
        inputs = 2 * len(preprocessing["numbers"]) + size * len(self.embeddings)
        dropout = hyperparameters["dropout"]
        self.layers = nn.Sequential(
            nn.Linear(inputs, width), nn.SiLU(), nn.Dropout(dropout),
            nn.Linear(width, width), nn.SiLU(), nn.Dropout(dropout),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Inputs as `to_tensors` makes them; logits `(N,)`."""
        columns = [embed(inputs["categorical"][:, place]) for place, embed in enumerate(self.embeddings)]
        return self.layers(torch.cat([inputs["numeric"], inputs["missing"], *columns], dim=1)).squeeze(1)


def build_model(preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> nn.Module:
    """An untrained network; the caller seeds torch first."""
    return SmallNetwork(preprocessing, hyperparameters)


def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of each sample, in nats: logits `(N,)`, targets 0 or 1 `(N,)` to `(N,)`."""
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def predict(outputs: Tensor) -> Tensor:
    """Probability of a late arrival, logits `(N,)` to `(N,)`."""
    return torch.sigmoid(outputs)
