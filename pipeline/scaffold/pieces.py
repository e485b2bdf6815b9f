"""How texts are cut into the pieces whose next bytes a language model predicts, and what whole groups of pieces go by.

The generated dataset.py cuts them (templates/cut.py.j2); here is decided how long a piece is, how many are kept, and
whether texts or passages of them lie in one split.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainworthy.pipeline.scaffold.shares import LARGEST_GROUP, LEAST_GROUPS
from trainworthy.pipeline.scaffold.windows import Windows

# Bytes of a piece at most: a place of it costs as much as a row of other kinds.
MOST_BYTES = 128
# Pieces that a draft trains on in minutes.
MOST_PIECES = 12_000
# Pieces end behind a line or a word, so that they are shorter than they may be.
FILLED = 0.85
# Pieces of a passage that are kept. The next passage goes on with the same text, so that a passage has some length.
PIECES_A_PASSAGE = 16
# Each piece is as many labels as it has bytes, so that few of them make a batch; of few pieces fewer, for more updates.
BATCH, SMALL_BATCH, FEW_PIECES = 32, 16, 4_000
# Tables of the last bytes know texts by heart after some more.
EPOCHS = 8


@dataclass(frozen=True)
class Cut:
    """As the generated dataset.py has it: `every` so many-th piece is kept, `passage` are so many pieces in a row."""

    length: int
    every: int = 1

    @property
    def passage(self) -> int:
        return PIECES_A_PASSAGE * self.every


@dataclass(frozen=True)
class Names:
    """Columns that dataset.py adds; `passage` only where the rows are split by it."""

    piece: str
    document: str
    passage: str | None = None


def piece_bytes(longest: int) -> int:
    """`length` for texts of so many bytes at most: theirs, in whole eights, or MOST_BYTES."""
    return min(MOST_BYTES, 8 * math.ceil(longest / 8))


def cut_of(length: int, sizes: Collection[int]) -> Cut:
    """For texts of these numbers of bytes."""
    pieces = sum(1 if size <= length else math.ceil(size / (FILLED * length)) for size in sizes)
    return Cut(length, max(1, math.ceil(pieces / MOST_PIECES)))


def splits_hold_whole_texts(sizes: Sequence[int]) -> bool:
    """Whether splits can hold whole texts: there are enough of them, and none is too large a part."""
    held = [size for size in sizes if size > 0]
    return len(held) >= LEAST_GROUPS and max(held) <= LARGEST_GROUP * sum(held)


def of_pieces(windows: Windows) -> Windows:
    """With a batch size for rows that are many labels each."""
    batch_size = SMALL_BATCH if windows.training < FEW_PIECES else BATCH
    return dataclasses.replace(windows, batch_size=batch_size, epochs=EPOCHS)
