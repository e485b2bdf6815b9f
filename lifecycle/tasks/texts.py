"""Texts as their bytes in UTF-8."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError

if TYPE_CHECKING:
    import numpy as np

BYTES = 256
# Beyond a document's end: what torch's cross_entropy leaves out by default (ignore_index).
NOTHING = -100


def bytes_of(texts: Iterable[Any], length: int, *, spread: bool = False) -> np.ndarray:
    """Bytes of texts, int16 `(N, length)`: the first ones, or `spread` over all; NOTHING beyond the end.

    Raises EvaluationError where one is no text, or has nothing but white space.
    """
    import numpy as np

    texts = list(texts)
    wrong = [text for text in texts if not isinstance(text, str) or not text.strip()]
    if wrong:
        fix = "leave such rows out where the dataset is made"
        problem = f"{len(wrong)} of {len(texts)} documents are empty, or no texts"
        raise EvaluationError(problem, value=repr(wrong[0])[:40], fix=fix)
    codes = np.full((len(texts), length), NOTHING, dtype=np.int16)
    for row, text in enumerate(texts):
        data = np.frombuffer(text.encode(), dtype=np.uint8)
        if spread and len(data) > length:
            data = data[np.arange(length) * len(data) // length]
        codes[row, : len(data)] = data[:length]
    return codes


def later_changed(texts: np.ndarray, length: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Texts with other characters from that share of the first `length` bytes on, and the first byte's place that is
    another, `(N,)`; the number of bytes changes too."""
    import numpy as np

    changed, places = [], []
    for text in texts:
        head = text.encode()[: int(share * min(length, len(text.encode())))].decode(errors="ignore")
        rest = text[len(head) :]
        # Another letter for each, whatever it was; and one more, since the length may be read too.
        changed.append(head + "".join("q" if sign != "q" else "z" for sign in rest) + "z")
        places.append(len(head.encode()))
    return np.array(changed, dtype=object), np.array(places)
