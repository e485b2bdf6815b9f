"""Files of golden requests: made of many rows' files, so that none of them ships with a model.

Each point of a picture is that of another picture at its place, each value of an array that of another array, each word
of a text one of the words of all. So they are noise of the right form and spread. Equal rows and seed give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.files.pictures import open_picture
from trainworthy.lifecycle.tasks.file_numbers import form_of

if TYPE_CHECKING:
    import numpy as np

# Files that are drawn from, one in memory at a time, and the bytes of the files that are made: noise hardly gets
# smaller, and they count for the size of what is shipped.
SOURCES, MADE_BYTES = 64, 2**20
# Of pictures that have several sizes, in points. A side that is cut is one that most networks can halve.
MOST_SIDE = 256
MOST_WORDS = 200
# What Pillow writes as it reads it; other pictures are made of eight bits a channel.
_KEPT_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_BLANK_TEXT = "blank"


class MadeFile(NamedTuple):
    """A file that is not written yet: its bytes, what its name ends in, and what it is; a mask is a picture."""

    data: bytes
    suffix: str
    kind: FileKind


@dataclass(frozen=True)
class _Sources:
    """Files of one form, how one is read and how one is written."""

    paths: Sequence[Path]
    read: Callable[[Path], np.ndarray]
    write: Callable[[np.ndarray], bytes]


def made_files(paths: Sequence[Path], count: int, generator: np.random.Generator, *, blank: bool) -> list[MadeFile]:
    """At most `count` files of the form of these, fewer where they are large; one without any content if `blank`."""
    form, suffix = form_of(paths), paths[0].suffix
    if form.kind == "text":
        return [MadeFile(text.encode(), suffix, "text") for text in _texts(paths, count, generator, blank=blank)]
    kind: FileKind = "array" if form.kind == "array" else "picture"
    sources = _arrays(paths) if kind == "array" else _pictures(paths)
    made = _mixed(sources, count, generator, axes=2 if kind == "picture" else None, blank=blank)
    return [MadeFile(sources.write(values), suffix, kind) for values in made]


def _mixed(
    sources: _Sources, count: int, generator: np.random.Generator, *, axes: int | None, blank: bool
) -> list[np.ndarray]:
    """One value at each place, each of a source drawn by itself; places are those of the first `axes` (None: all).

    One of zeros if it is to be `blank`, and zeros where the draw gives one of the sources again.
    """
    import numpy as np

    first = sources.read(sources.paths[0])
    if blank:
        return [np.zeros_like(first)]
    many = min(count, 1 + MADE_BYTES // max(first.nbytes, 1))
    chosen = generator.integers(len(sources.paths), size=(many, *first.shape[:axes]))
    made, known = np.zeros((many, *first.shape), first.dtype), set()
    for number, path in enumerate(sources.paths):
        values = sources.read(path)
        known.add(hashlib.sha256(values.tobytes()).digest())
        here = chosen == number
        made[here] = np.broadcast_to(values, made.shape)[here]
    return [np.zeros_like(one) if hashlib.sha256(one.tobytes()).digest() in known else one for one in made]


def _arrays(paths: Sequence[Path]) -> _Sources:
    """Arrays of the first one's shape and type."""
    import numpy as np

    def form(path: Path) -> tuple[tuple[int, ...], np.dtype]:
        # Of the head alone, the values stay on the disk.
        values = np.load(path, allow_pickle=False, mmap_mode="r")
        return values.shape, values.dtype

    first = form(paths[0])
    return _Sources([path for path in _some(paths) if form(path) == first] or [paths[0]], _loaded, _npy)


def _loaded(path: Path) -> np.ndarray:
    import numpy as np

    return np.load(path, allow_pickle=False)


def _npy(values: np.ndarray) -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def _pictures(paths: Sequence[Path]) -> _Sources:
    """Pictures in the size and mode of the first, written in its format; of no side above MOST_SIDE if sizes differ."""
    import numpy as np
    from PIL.Image import Resampling, fromarray

    some = _some(paths)
    with open_picture(paths[0]) as image:
        form, size, mode = image.format, image.size, image.mode if image.mode in _KEPT_MODES else "RGB"
        palette = image.getpalette() if mode == "P" else None
    if any(_size(path) != size for path in some):
        size = (min(size[0], MOST_SIDE), min(size[1], MOST_SIDE))

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

    return _Sources(some, read, write)


def _size(path: Path) -> tuple[int, int]:
    with open_picture(path) as image:
        return image.size


def _some(paths: Sequence[Path]) -> list[Path]:
    """SOURCES of the files at most, evenly spread."""
    from trainworthy.lifecycle.sampling import evenly_spread

    return [paths[place] for place in evenly_spread(len(paths), SOURCES)]


def _texts(paths: Sequence[Path], count: int, generator: np.random.Generator, *, blank: bool) -> Iterator[str]:
    """Texts of as many words as one of the texts has, each word drawn from all."""
    found = [re.findall(r"\S+", path.read_text(encoding="utf-8"))[:MOST_WORDS] for path in _some(paths)]
    texts, words = {tuple(one) for one in found}, [word for one in found for word in one]
    for _ in range(1 if blank else count):
        length = len(found[int(generator.integers(len(found)))])
        drawn = [words[place] for place in generator.integers(len(words), size=length)]
        yield _BLANK_TEXT if blank or tuple(drawn) in texts else " ".join(drawn)
