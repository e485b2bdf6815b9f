"""Baselines of texts: the share of each byte, and an n-gram of bytes.

The n-gram mixes the counts after the last 5, 4 … 0 bytes by Witten and Bell (1991): where a context was followed by T
different bytes in n cases, the shorter context speaks with weight T / (n + T). Nothing has to be fitted but counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from trainworthy.lifecycle.tasks.texts import BYTES, NOTHING, bytes_of

# Bytes before that a byte is predicted by; 6 of them and the next fill 57 of 63 bits.
ORDER = 5
# Before the beginning of a document, and beyond its end.
_OUTSIDE = BYTES


@dataclass(frozen=True)
class ConstantBytes:
    """The same probabilities `(256,)` everywhere. Called with rows it answers at `places`, `whole` at all."""

    shares: np.ndarray
    length: int
    places: np.ndarray

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        return self._answers(len(rows), len(self.places))

    def whole(self, rows: pd.DataFrame) -> np.ndarray:
        """`(N, length, 256)`."""
        return self._answers(len(rows), self.length)

    def _answers(self, rows: int, places: int) -> np.ndarray:
        return np.broadcast_to(self.shares, (rows, places, BYTES)).copy()


@dataclass(frozen=True)
class Counts:
    """What followed the contexts of one length: pairs of context and byte in rising order, how often each came, and of
    each context its first pair, its number of pairs and of cases."""

    contexts: np.ndarray
    first: np.ndarray
    different: np.ndarray
    cases: np.ndarray
    following: np.ndarray
    times: np.ndarray


@dataclass(frozen=True)
class ByteNgram:
    """Called with rows that have the text's column it answers at `places`, `whole` at all."""

    column: str
    length: int
    places: np.ndarray
    counts: tuple[Counts, ...]

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        return self._answers(rows, self.places)

    def whole(self, rows: pd.DataFrame) -> np.ndarray:
        """`(N, length, 256)`."""
        return self._answers(rows, np.arange(self.length))

    def _answers(self, rows: pd.DataFrame, places: np.ndarray) -> np.ndarray:
        padded, _ = _padded(rows[self.column], self.length)
        probabilities = np.full((len(rows) * len(places), BYTES), 1 / BYTES)
        for order, counts in enumerate(self.counts):
            _mix(probabilities, counts, _contexts(padded, order, places).reshape(-1))
        return probabilities.reshape(len(rows), len(places), BYTES)


def fit_ngram(texts: pd.Series, column: str, length: int, places: np.ndarray) -> ByteNgram:
    """The counts of the texts' first `length` bytes."""
    padded, known = _padded(texts, length)
    following = padded[:, ORDER:][known]
    every = np.arange(length)
    return ByteNgram(
        column, length, places,
        tuple(_counted(_contexts(padded, order, every)[known], following) for order in range(ORDER + 1)),
    )  # fmt: skip


def _padded(texts: pd.Series, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes with ORDER places before the first, `(N, ORDER + length)` int64, and which of the others are bytes."""
    codes = bytes_of(texts, length)
    known = codes != NOTHING
    before = np.full((len(codes), ORDER), _OUTSIDE, dtype=np.int64)
    return np.concatenate([before, np.where(known, codes, _OUTSIDE).astype(np.int64)], axis=1), known


def _contexts(padded: np.ndarray, order: int, places: np.ndarray) -> np.ndarray:
    """A number of the last `order` bytes before each place, `(N, places)`."""
    numbers = np.zeros((len(padded), len(places)), dtype=np.int64)
    for back in range(order, 0, -1):
        numbers = numbers * (BYTES + 1) + padded[:, ORDER + places - back]
    return numbers


def _counted(contexts: np.ndarray, following: np.ndarray) -> Counts:
    pairs, times = np.unique(contexts * BYTES + following, return_counts=True)
    distinct, first, different = np.unique(pairs // BYTES, return_index=True, return_counts=True)
    return Counts(distinct, first, different, np.add.reduceat(times, first), pairs % BYTES, times)


def _mix(probabilities: np.ndarray, counts: Counts, contexts: np.ndarray) -> None:
    """Mix the counts after these contexts `(M,)` into probabilities `(M, 256)` of shorter contexts, in place."""
    at = np.minimum(np.searchsorted(counts.contexts, contexts), len(counts.contexts) - 1)
    met = np.flatnonzero(counts.contexts[at] == contexts)
    at = at[met]
    different, whole = counts.different[at], counts.different[at] + counts.cases[at]
    factor = np.ones(len(probabilities))
    factor[met] = different / whole
    probabilities *= factor[:, None]
    rows = np.repeat(met, different)
    # The numbers of each context's pairs, one after another.
    pairs = np.arange(len(rows)) - np.repeat(np.cumsum(different) - different, different)
    pairs += np.repeat(counts.first[at], different)
    probabilities[rows, counts.following[pairs]] += counts.times[pairs] / np.repeat(whole, different)
