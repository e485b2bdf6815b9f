"""What a picture, a text or another file is like, in a few numbers: its metadata, by which rows can be grouped.

A path says nothing of a picture, and a text hardly comes back; that it is dark or long does. All names are the field's:
brightness is the mean of the luma (ITU-R BT.601), contrast its standard deviation (Peli 1990), sharpness the variance
of its Laplacian (Pech-Pacheco et al. 2000).
"""

from __future__ import annotations

import math
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.files.pictures import in_eight_bits, open_picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pandas as pd
    from PIL.Image import Image

# What is kept of files is of one form: another definition of any value below is another number here.
FORM = 2
ValueKind = Literal["integer", "number", "string"]
OF_TEXTS: dict[str, ValueKind] = {
    "characters": "integer", "words": "integer", "word_length": "number", "uppercase": "number", "digits": "number",
    "non_ascii": "number",
}  # fmt: skip
_OF_ANY_FILE: dict[str, ValueKind] = {"bytes": "integer"}
_OF_IMAGE: dict[str, ValueKind] = {"width": "integer", "height": "integer", "format": "string", "mode": "string"}
_OF_POINTS: dict[str, ValueKind] = {
    "brightness": "number", "contrast": "number", "saturation": "number", "sharpness": "number",
}  # fmt: skip
# Each name with the type of its values, by the kind of file.
OF_FILES: dict[FileKind, dict[str, ValueKind]] = {
    "picture": _OF_ANY_FILE | _OF_IMAGE | _OF_POINTS,
    "mask": _OF_ANY_FILE | _OF_IMAGE,
    "array": _OF_ANY_FILE,
    "text": _OF_ANY_FILE | OF_TEXTS,
}  # fmt: skip
# Points are looked at on a copy whose longer side has so many at most: a blurred picture is blurred there, too.
_LONGEST_SIDE = 256
# Characters that are looked at together, at some 30 bytes each.
_AT_ONCE = 2_000_000
_SPACE, _UPPER, _CASED, _DIGIT = 1, 2, 4, 8


def file_metadata(path: Path, kind: FileKind) -> dict[str, Any]:
    """The values of OF_FILES[kind] of one file; sizes in points and bytes.

    Brightness, contrast and saturation are from 0 to 1, sharpness is 0 for one colour, and all of them are NaN for a
    picture of floats; those of texts as text_metadata. Raises EvaluationError for a file that cannot be read as its
    kind.
    """
    try:
        values: dict[str, Any] = {"bytes": path.stat().st_size}
        if kind in ("picture", "mask"):
            return values | _of_image(path, points=kind == "picture")
        if kind == "text":
            return values | {
                name: figure[0].item() for name, figure in _of_texts([path.read_text(encoding="utf-8")]).items()
            }
        return values
    except Exception as error:  # Decoders of damaged bytes raise whatever they like.
        raise EvaluationError(
            f"a file can't be read as {kind} ({type(error).__name__})", value=path.name,
            fix="materialize the snapshot again: it tells which files can't be read", code="metadata.file",
        ) from None  # fmt: skip


def text_metadata(texts: pd.Series) -> pd.DataFrame:
    """The values of OF_TEXTS of each text `(N,)`, with its index.

    `characters` and `words` are counts (words end at white space), `word_length` is a word's mean characters;
    `uppercase` is the share of capitals among letters that have a case, `digits` and `non_ascii` are shares of the
    characters. NaN for a missing text, and for a share of nothing.
    """
    import numpy as np
    import pandas as pd

    known = texts.notna().to_numpy()
    of_known = _of_texts(texts[known].astype("str").tolist())
    made = {name: np.full(len(texts), np.nan) for name in OF_TEXTS}
    for name, values in of_known.items():
        made[name][known] = values
    table = pd.DataFrame(made, index=texts.index)
    return table.astype({name: "Int64" for name, kind in OF_TEXTS.items() if kind == "integer"})


def _of_image(path: Path, *, points: bool) -> dict[str, Any]:
    with open_picture(path) as image:
        values = {"width": image.width, "height": image.height, "format": image.format or "", "mode": image.mode}
        if not points:
            return values
        # Of floats it is not known which number is white, so that nothing is said of how bright they are.
        return values | (dict.fromkeys(_OF_POINTS, math.nan) if image.mode == "F" else _of_points(image))


def _of_points(image: Image) -> dict[str, float]:
    import numpy as np

    # A JPEG is decoded at a part of its size where that is enough.
    image.draft("RGB", (_LONGEST_SIDE, _LONGEST_SIDE))
    coloured = _small(in_eight_bits(image, "RGB"))
    points = np.asarray(coloured, dtype=np.float32) / 255
    luma = points @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    most, least = points.max(axis=2), points.min(axis=2)
    return {
        "brightness": float(luma.mean(dtype=np.float64)),
        "contrast": float(luma.std(dtype=np.float64)),
        "saturation": float(np.divide(most - least, most, out=np.zeros_like(most), where=most > 0).mean(dtype=float)),
        "sharpness": float(_laplacian(luma).var(dtype=np.float64)),
    }


def _small(image: Image) -> Image:
    """Each point the mean of those that it stands for; as it is where it is small."""
    from PIL.Image import Resampling

    longest = max(image.size)
    if longest <= _LONGEST_SIDE:
        return image
    width, height = (max(1, round(side * _LONGEST_SIDE / longest)) for side in image.size)
    return image.resize((width, height), Resampling.BOX)


def _laplacian(luma: np.ndarray) -> np.ndarray:
    """By the four neighbours `(H, W)`; beyond an edge lies the edge's own value, so that a thin picture has one too."""
    import numpy as np

    around = np.pad(luma, 1, mode="edge")
    return around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:] - 4 * luma


def _of_texts(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Of each text, `(N,)` float64 or int64: part after part, so that little is held."""
    import numpy as np

    parts = [_of_some(part) for part in _parts(texts)] or [_of_some([])]
    return {name: np.concatenate([part[name] for part in parts]) for name in OF_TEXTS}


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    held, characters = [], 0
    for text in texts:
        held.append(text)
        characters += len(text)
        if characters >= _AT_ONCE:
            yield held
            held, characters = [], 0
    if held:
        yield held


def _of_some(texts: list[str]) -> dict[str, np.ndarray]:
    import numpy as np

    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")
    kinds = _kinds(codes)
    ends = np.cumsum(lengths)
    starts = ends - lengths

    def count(marked: np.ndarray) -> np.ndarray:
        upto = np.concatenate([[0], np.cumsum(marked, dtype=np.int64)])
        return upto[ends] - upto[starts]

    in_word = (kinds & _SPACE) == 0
    begins = in_word.copy()
    begins[1:] &= ~in_word[:-1]
    # Where a text begins, a word of the text before it does not go on.
    first = starts[lengths > 0]
    begins[first] = in_word[first]
    words = count(begins)
    return {
        "characters": lengths,
        "words": words,
        "word_length": _share(count(in_word), words),
        "uppercase": _share(count((kinds & _UPPER) > 0), count((kinds & _CASED) > 0)),
        "digits": _share(count((kinds & _DIGIT) > 0), lengths),
        "non_ascii": _share(count(codes > 127), lengths),
    }


def _kinds(codes: np.ndarray) -> np.ndarray:
    """What each character is, in bits; Python is asked once for each different one."""
    import numpy as np

    kinds = np.zeros(int(codes.max()) + 1 if len(codes) else 1, dtype=np.uint8)
    for code in np.flatnonzero(np.bincount(codes)) if len(codes) else ():
        letter = chr(code)
        kinds[code] = (
            _SPACE * letter.isspace()
            + _UPPER * letter.isupper()
            + _CASED * (letter.isupper() or letter.islower())
            + _DIGIT * (unicodedata.category(letter) == "Nd")
        )
    return kinds[codes]


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
