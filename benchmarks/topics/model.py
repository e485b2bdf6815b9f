"""The network for `topics`: a small transformer whose places see themselves and those before them (Vaswani et al.
2017); a probability of each byte at each place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

# What stands before the first byte of a text, and behind its last one.
START = 256


def fit_preprocessing(training: pd.DataFrame, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing has to be learned from the rows: bytes are bytes."""
    return {}


def to_tensors(rows: pd.DataFrame, preprocessing: Mapping[str, Any]) -> dict[str, Tensor]:
    """`before` `(N, length)` int64: the byte before each place, START at the first one and beyond the end."""
    length = preprocessing["target"]["length"]
    before = np.full((len(rows), length), START, dtype=np.int64)
    for row, text in enumerate(rows["text"]):
        data = np.frombuffer(text.encode(), dtype=np.uint8)[: length - 1]
        before[row, 1 : len(data) + 1] = data
    return {"before": torch.from_numpy(before)}


class Attention(nn.Module):
    """Each place gathers from the places up to it, `(N, length, width)`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.asked, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, values: Tensor) -> Tensor:
        rows, length, width = values.shape
        parts = self.asked(values).view(rows, length, 3, self.heads, -1).unbind(2)
        queries, keys, found = (part.transpose(1, 2) for part in parts)
        gathered = nn.functional.scaled_dot_product_attention(queries, keys, found, is_causal=True)
        return self.mixed(gathered.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    """Attention and a layer of its own for each place, each added to what came in."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads), nn.Dropout(dropout))
        self.place = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, values: Tensor) -> Tensor:
        values = values + self.attention(values)
        return values + self.place(values)


class TextNetwork(nn.Module):
    """Logits of the 256 bytes at each place, `(N, length, 256)`."""

    def __init__(self, length: int, symbols: int, hyperparameters: Mapping[str, Any]) -> None:
        super().__init__()
        width, heads, dropout = (hyperparameters[name] for name in ("width", "heads", "dropout"))
        self.bytes, self.places = _embedding(symbols + 1, width), _embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(hyperparameters["depth"])))
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        before = inputs["before"]
        places = self.places(torch.arange(before.shape[1], device=before.device))
        return self.logits(self.norm(self.blocks(self.bytes(before) + places)))


def _embedding(entries: int, width: int) -> nn.Embedding:
    table = nn.Embedding(entries, width)
    nn.init.normal_(table.weight, std=0.1)
    return table


def build_model(preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> nn.Module:
    """An untrained network; the caller seeds torch first."""
    target = preprocessing["target"]
    return TextNetwork(target["length"], target["bytes"], hyperparameters)


def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
    """Nats a byte of each text: logits `(N, length, 256)`, bytes `(N, length)`, -100 beyond the end, to `(N,)`."""
    losses = nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
    return losses.sum(dim=1) / (targets >= 0).sum(dim=1)


def predict(outputs: Tensor) -> Tensor:
    """A probability of each byte at each place, `(N, length, 256)`."""
    return outputs.softmax(dim=-1)
