"""Files and texts as a few numbers, for the baselines: what a picture, an array or a text tells without a network.

A picture is its thumbnail of 8 × 8 points for each channel, an array up to 64 of its values, evenly spread, a text the
shares of its words in 128 buckets. A network that is not better than these has seen too little in its files.
"""

from __future__ import annotations

import functools
import math
import mimetypes
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.files.pictures import in_eight_bits, open_picture
from trainworthy.lifecycle.files.tree import in_threads
from trainworthy.lifecycle.tasks.words import words_in

if TYPE_CHECKING:
    import numpy as np

SIDE, MOST_VALUES, BUCKETS = 8, 64, 128
# Of a text the first part says what it is about; Python counts some ten million letters a second.
MOST_LETTERS = 200_000
# Files that a process keeps as numbers: at most 192 of 4 bytes each, some 100 MB.
MOST_KEPT = 100_000
_ARRAY = b"\x93NUMPY"


@dataclass(frozen=True)
class Form:
    """How the files of a column become `width` numbers each."""

    kind: Literal["grey", "colour", "array", "text", "words"]
    width: int


# Of texts that stand in the table itself.
OF_WORDS = Form("words", BUCKETS)


def form_of(paths: Sequence[Path]) -> Form:
    """The form of a column by its first file, and of pictures by the first few: one with colours makes all so.

    What its name says is a text is one, and so is all that is neither an array nor a picture.
    """
    if _is_array(paths[0]):
        return Form("array", min(MOST_VALUES, max(1, _values(paths[0]).size)))
    if (mimetypes.guess_type(paths[0].name)[0] or "").startswith("text/"):
        return Form("text", BUCKETS)
    try:
        coloured = any(_is_coloured(path) for path in paths[:32])
    except Exception:  # Of a text that begins as a picture does, "P1 outage", Pillow raises whatever it likes.
        return Form("text", BUCKETS)
    return Form("colour", 3 * SIDE**2) if coloured else Form("grey", SIDE**2)


def file_numbers(values: Sequence[object], form: Form) -> np.ndarray:
    """Numbers `(N, form.width)` float64 of these Paths; NaN where there is none.

    A process decodes a file once, and keeps its numbers. Raises EvaluationError for one that can't be decoded.
    """
    import numpy as np

    made = np.full((len(values), form.width), np.nan)
    places = [place for place, value in enumerate(values) if isinstance(value, Path)]
    all_numbers = in_threads(
        functools.partial(_cached_numbers, form=form), [str(values[place]) for place in places], "reading files"
    )
    for place, numbers in zip(places, all_numbers, strict=True):
        made[place] = numbers
    return made


def text_numbers(values: Sequence[object]) -> np.ndarray:
    """Numbers `(N, BUCKETS)` float64 of these texts: how often they have the words of a bucket; NaN where missing.

    Not scaled to a length, as those of files are: trees are ten times as fast on a few different numbers a column.
    """
    import numpy as np

    made = np.full((len(values), BUCKETS), np.nan)
    for place, text in enumerate(values):
        if isinstance(text, str):
            made[place] = _word_counts(text)
    return made


def _is_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ARRAY)) == _ARRAY


@functools.lru_cache(MOST_KEPT)
def _cached_numbers(path: str, form: Form) -> np.ndarray:
    try:
        return _decoded(Path(path), form).astype("float32")
    except (OSError, ValueError, SyntaxError) as error:
        fix = "materialize the snapshot again: it tells which files can't be read"
        raise EvaluationError(f"a file can't be read as numbers: {error}", value=Path(path).name, fix=fix) from None


def _decoded(path: Path, form: Form) -> np.ndarray:
    if form.kind == "text":
        return _of_text(path.read_text(encoding="utf-8"))
    return _of_array(path, form.width) if form.kind == "array" else _of_picture(path, colour=form.kind == "colour")


def _is_coloured(path: Path) -> bool:
    with open_picture(path) as image:
        return image.mode not in ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "F")


def _of_picture(path: Path, *, colour: bool) -> np.ndarray:
    """The thumbnail's points, 0 to 1, channel by channel: the mean of all points that each stands for."""
    import numpy as np
    from PIL.Image import Resampling

    with open_picture(path) as image:
        # A JPEG is decoded at an eighth of its size where that is enough.
        image.draft("RGB" if colour else "L", (2 * SIDE, 2 * SIDE))
        small = in_eight_bits(image, "RGB" if colour else "L").resize((SIDE, SIDE), Resampling.BOX)
        points = np.asarray(small, dtype=np.float32) / 255
    return points.transpose(2, 0, 1).ravel() if colour else points.ravel()


def _values(path: Path) -> np.ndarray:
    import numpy as np

    return np.load(path, allow_pickle=False, mmap_mode="r").reshape(-1)


def _of_array(path: Path, width: int) -> np.ndarray:
    """Values at evenly spread places, the first and the last among them; what is not finite is missing."""
    import numpy as np

    values = _values(path)
    chosen = values[np.linspace(0, len(values) - 1, width).round().astype(np.int64)].astype(np.float64)
    return np.where(np.isfinite(chosen), chosen, np.nan)


def _of_text(text: str) -> np.ndarray:
    """Counts of the words by bucket, their logarithms scaled to length 1."""
    counts = _word_counts(text)
    return counts / (math.sqrt(float((counts**2).sum())) or 1.0)


def _word_counts(text: str) -> np.ndarray:
    """Logarithms of one more than the counts of the words by bucket, `(BUCKETS,)`."""
    import numpy as np

    buckets = [zlib.crc32(word.encode()) % BUCKETS for word in words_in(text[:MOST_LETTERS].lower())]
    return np.log1p(np.bincount(buckets, minlength=BUCKETS))
