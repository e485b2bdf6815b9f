"""Files of golden requests: made of many rows' files, so that none of them ships with a model.

Each point of a picture is that of another picture at its place, each value of an array that of another array, each word
of a text one of the words of all. So they are noise of the right form and spread. Equal rows and seed give equal bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lifecycle.contract.file_column import FileKind
from lifecycle.data.pictures import open_picture
from lifecycle.tasks.file_numbers import form_of

if TYPE_CHECKING:
    import numpy as np

    Write = Callable[[np.ndarray], bytes]

# Files that are drawn from, as many as fit, and the bytes of the files that are made: noise hardly gets smaller, and
# they count for the size of what is shipped.
SOURCES, SOURCE_BYTES, MADE_BYTES = 64, 256 * 2**20, 2**20
MOST_WORDS = 200
# What Pillow writes as it reads it; other pictures are made of eight bits a channel.
_KEPT_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_BLANK_TEXT = "blank"


class MadeFile(NamedTuple):
    """A file that is not written yet: its bytes, what its name ends in, and what it is; a mask is a picture."""

    data: bytes
    suffix: str
    kind: FileKind


def made_files(paths: Sequence[Path], count: int, generator: np.random.Generator, *, blank: bool) -> list[MadeFile]:
    """At most `count` files of the form of these, fewer where they are large; one without any content if `blank`."""
    form, suffix = form_of(paths), paths[0].suffix
    if form.kind == "text":
        return [MadeFile(text.encode(), suffix, "text") for text in _texts(paths, count, generator, blank=blank)]
    picture = form.kind != "array"
    sources, write = _pictures(paths) if picture else _arrays(paths)
    made, size = [], 0
    while len(made) < count and size < MADE_BYTES:
        data = write(_mixed(sources, generator, channels=picture and sources.ndim == 4, blank=blank))
        made.append(MadeFile(data, suffix, "picture" if picture else "array"))
        size += len(data)
        if blank:
            break
    return made


def _mixed(sources: np.ndarray, generator: np.random.Generator, *, channels: bool, blank: bool) -> np.ndarray:
    """One value at each place, each of a source drawn by itself, the `channels` of a point together.

    Zeros if it is to be `blank`, and where the draw gives one of the sources again.
    """
    import numpy as np

    if blank:
        return np.zeros_like(sources[0])
    chosen = generator.integers(len(sources), size=sources.shape[1:-1] if channels else sources.shape[1:])
    mixed = np.take_along_axis(sources, (chosen[..., None] if channels else chosen)[None], axis=0)[0]
    again = (mixed == sources).reshape(len(sources), -1).all(axis=1).any()
    return np.zeros_like(mixed) if again else mixed


def _arrays(paths: Sequence[Path]) -> tuple[np.ndarray, Write]:
    """Arrays of the first one's shape and type, and how one is written."""
    import numpy as np

    first = np.load(paths[0], allow_pickle=False)
    if not first.size:
        return first[None], _npy
    loaded = (np.load(path, allow_pickle=False) for path in _as_many(paths, first.nbytes))
    return np.stack([one for one in loaded if (one.shape, one.dtype) == (first.shape, first.dtype)]), _npy


def _npy(values: np.ndarray) -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def _pictures(paths: Sequence[Path]) -> tuple[np.ndarray, Write]:
    """Pictures in the size and mode of the first, and how one is written in its format."""
    import numpy as np
    from PIL.Image import Resampling, fromarray

    with open_picture(paths[0]) as image:
        form, size, mode = image.format, image.size, image.mode if image.mode in _KEPT_MODES else "RGB"
        palette = image.getpalette() if mode == "P" else None

    def read(path: Path) -> np.ndarray:
        with open_picture(path) as image:
            same = image if image.mode == mode else image.convert(mode)
            return np.asarray(same if same.size == size else same.resize(size, Resampling.NEAREST))

    def write(values: np.ndarray) -> bytes:
        file = io.BytesIO()
        image = fromarray(values)
        if palette:
            image.putpalette(palette)
        image.save(file, form, **({"quality": 95} if form == "JPEG" else {}))
        return file.getvalue()

    points = size[0] * size[1] * 4
    return np.stack([read(path) for path in _as_many(paths, points)]), write


def _as_many(paths: Sequence[Path], size: int) -> Sequence[Path]:
    """So many of the files, evenly spread, that they fit into memory together; two at least, if there are two."""
    from lifecycle.data.few_rows import evenly_spread

    most = max(2, min(SOURCES, SOURCE_BYTES // max(size, 1)))
    return [paths[place] for place in evenly_spread(len(paths), most)]


def _texts(paths: Sequence[Path], count: int, generator: np.random.Generator, *, blank: bool) -> Iterator[str]:
    """Texts of as many words as one of the texts has, each word drawn from all."""
    found = [re.findall(r"\S+", path.read_text(encoding="utf-8"))[:MOST_WORDS] for path in _as_many(paths, 2**20)]
    texts, words = {tuple(one) for one in found}, [word for one in found for word in one]
    for _ in range(1 if blank else count):
        length = len(found[int(generator.integers(len(found)))])
        drawn = [words[place] for place in generator.integers(len(words), size=length)]
        yield _BLANK_TEXT if blank or tuple(drawn) in texts else " ".join(drawn)
