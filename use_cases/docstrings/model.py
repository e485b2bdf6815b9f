"""The network for `docstrings`: tables of the last bytes, and causal convolutions with growing gaps above them (van den
Oord et al. 2016); a probability of each byte at each place.

A network that sees one byte at a time needs minutes to learn spelling, which tables learn in seconds; and the byte
n-gram, a strong baseline, knows spelling from the start.
"""

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
WIDTH = 3
# Numbers of last bytes that have a table each, rising by one: a hash goes on from the one before.
ORDERS = (2, 3, 4, 5)
FACTOR, MODULUS = 1_000_003, 2_147_483_647


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


class Causal(nn.Module):
    """A residual block that sees a place and two before it, `gap` places apart; `(N, channels, length)`."""

    def __init__(self, channels: int, gap: int) -> None:
        super().__init__()
        self.reach = (WIDTH - 1) * gap
        self.seen = nn.Conv1d(channels, 2 * channels, WIDTH, dilation=gap)
        self.mixed = nn.Conv1d(channels, channels, 1)

    def forward(self, values: Tensor) -> Tensor:
        # Zeros on the left alone: a place must not see the ones behind it.
        seen = nn.functional.glu(self.seen(nn.functional.pad(values, (self.reach, 0))), dim=1)
        return values + self.mixed(seen)


class TextNetwork(nn.Module):
    """Logits of the 256 bytes at each place, `(N, length, 256)`.

    A table for each of ORDERS gives what the last so many bytes bring to mind, by a hash of them; some share an entry.
    """

    def __init__(self, symbols: int, hyperparameters: Mapping[str, Any]) -> None:
        super().__init__()
        channels, size, width = (hyperparameters[name] for name in ("channels", "entries", "width"))
        self.entries = size
        self.last = nn.Embedding(symbols + 1, channels)
        self.tables = nn.ModuleList(_table(size, width) for _ in ORDERS)
        self.dropout = nn.Dropout(hyperparameters["dropout"])
        self.joined = nn.Linear(channels + width * len(ORDERS), channels)
        self.blocks = nn.Sequential(*(Causal(channels, gap) for gap in hyperparameters["gaps"]))
        self.logits = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, symbols))

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        before = inputs["before"]
        hashed, found = before, [self.last(before)]
        for order, table in zip(ORDERS, self.tables, strict=True):
            # The byte that lies `order` places before the one that is predicted.
            earlier = nn.functional.pad(before[:, : 1 - order], (order - 1, 0), value=START)
            hashed = (hashed * FACTOR + earlier + 1) % MODULUS
            found.append(table(hashed % self.entries))
        joined = torch.relu(self.joined(self.dropout(torch.cat(found, dim=2))))
        return self.logits(self.blocks(joined.transpose(1, 2)).transpose(1, 2))


def _table(entries: int, width: int) -> nn.Embedding:
    table = nn.Embedding(entries, width)
    nn.init.normal_(table.weight, std=0.1)
    return table


def build_model(preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> nn.Module:
    """An untrained network; the caller seeds torch first."""
    return TextNetwork(preprocessing["target"]["bytes"], hyperparameters)


def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
    """Nats a byte of each text: logits `(N, length, 256)`, bytes `(N, length)`, -100 beyond the end, to `(N,)`."""
    losses = nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
    return losses.sum(dim=1) / (targets >= 0).sum(dim=1).clamp_min(1)


def predict(outputs: Tensor) -> Tensor:
    """A probability of each byte at each place, `(N, length, 256)`."""
    return outputs.softmax(dim=-1)
