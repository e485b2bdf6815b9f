"""Golden requests: what an artifact is asked after a rollback, with the answers that it gave when it was written.

Rows must not ship with a model. So each column is drawn by itself from the validation rows, columns that the contract
marks as sensitive are blank, and a request that happens to be a training, validation or calibration row in all that is
not blank is left out. A file is made anew of many rows' files and lies below `golden/` in the artifact: each point of
a picture is that of another picture at its place, each value of an array that of another array, each word of a text
one of the words of all. So files are noise of the right form and spread, and so is free text in a column. Equal
rows and seed give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.files.pictures import open_picture
from trainworthy.lifecycle.files.values import is_file_column
from trainworthy.lifecycle.protocol.results import GoldenAnswers
from trainworthy.lifecycle.sampling import evenly_spread
from trainworthy.lifecycle.tasks.file_numbers import form_of
from trainworthy.lifecycle.tasks.free_text import is_free_text
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.words import joined, pieces_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Score = Callable[[pd.DataFrame], np.ndarray]


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
        held = [path.read_text(encoding="utf-8") for path in _some(paths)]
        texts = [_BLANK_TEXT] if blank else _texts(held, count, generator)
        return [MadeFile(text.encode(), suffix, "text") for text in texts]
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
    return [np.zeros_like(array) if hashlib.sha256(array.tobytes()).digest() in known else array for array in made]


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
    return [paths[place] for place in evenly_spread(len(paths), SOURCES)]


def _texts(held: Sequence[str], count: int, generator: np.random.Generator) -> list[str]:
    """Texts of as many words as one of those held has, each word drawn from all; none is one of them.

    Of a script without blanks each two letters count as a word.
    """
    text_words = [pieces_of(text)[:MOST_WORDS] for text in held]
    known, words = {tuple(some) for some in text_words}, [word for some in text_words for word in some]
    made = []
    for _ in range(count):
        length = len(text_words[int(generator.integers(len(text_words)))])
        drawn = [words[place] for place in generator.integers(len(words), size=length)]
        text = joined(drawn)
        made.append(_BLANK_TEXT if tuple(pieces_of(text)) in known else text)
    return made


FILE, FILES, REQUESTS = "golden.parquet", "golden", 50
# In the artifact, if it has such features.
FILE_COLUMNS = "files.json"
# Some combinations that are drawn are rows and left out.
_DRAWN = 4 * REQUESTS
# With a colon, so that it is no feature's name.
_ANSWER = "golden:answer"
# Of an answer that is a picture so many numbers are compared, evenly spread.
_MOST_NUMBERS = 256


class Golden(NamedTuple):
    """Requests, a row each, and the answers on record, shape `(N, ...)`."""

    requests: pd.DataFrame
    answers: np.ndarray


def draw_requests(
    rows: pd.DataFrame, sensitive: Iterable[str], seed: int, known: Iterable[pd.DataFrame] = ()
) -> pd.DataFrame:
    """At most REQUESTS requests with the columns of `rows`; none is one of `rows` or of the frames in `known`.

    Blank columns do not count in that: a row without its sensitive values is a row still. A single blank request where
    the columns are so few that every combination that was drawn is a row. Columns of files hold files that are made and
    not yet written (MadeFile); a request with one is no row. A free text is made of words of several, as files are.
    """
    import numpy as np
    import pandas as pd

    generator, hidden = np.random.default_rng(seed), set(sensitive)
    named = [str(name) for name in rows if is_file_column(rows[name])]
    files = {name: _made(rows[name], generator, blank=name in hidden) for name in named}
    columns = {}
    for name in rows:
        if name in files:
            continue
        columns[name] = _drawn(rows[name], generator, blank=name in hidden)
    requests = pd.DataFrame(columns, index=range(_DRAWN))
    for frame in (rows, *known) if not files.keys() - hidden else ():
        shown = requests[[name for name in requests if name not in hidden]]
        requests = requests[~_hashes(shown).isin(_hashes(_near(frame, shown)))]
    if not len(requests):
        requests = pd.DataFrame({name: _blank(column.iloc[:1]) for name, column in columns.items()}, index=range(1))
    requests = requests.head(REQUESTS).reset_index(drop=True)
    places = range(len(requests))
    drawn = {name: pd.Series([made[place % len(made)] for place in places]) for name, made in files.items()}
    return with_columns(requests, drawn)[list(rows)]


def _drawn(column: pd.Series, generator: np.random.Generator, *, blank: bool) -> pd.Series:
    """_DRAWN values of it, and of free texts as many that nobody wrote."""
    import pandas as pd

    drawn = column.iloc[generator.integers(len(column), size=_DRAWN)].reset_index(drop=True)
    if blank:
        return _blank(drawn)
    if not is_free_text(column):
        return drawn
    known = column.dropna().astype("str")
    some = known.iloc[evenly_spread(len(known), SOURCES)].to_list()
    return pd.Series(_texts(some, _DRAWN, generator), dtype="str")


def _made(column: pd.Series, generator: np.random.Generator, *, blank: bool) -> list[MadeFile]:
    return made_files(column.dropna().to_list(), REQUESTS, generator, blank=blank)


def _blank(column: pd.Series) -> pd.Series:
    """Zero, false, the epoch or empty text: a value of the column's kind, as not every model takes a null."""
    import pandas as pd

    if column.dtype.kind in "iufbmM":
        return pd.Series(0, index=column.index, dtype=column.dtype)
    return pd.Series("", index=column.index, dtype="str")


def _near(frame: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """The rows whose every value is some request's: few, so that no copy is made of a frame that may be large."""
    import numpy as np

    near = np.ones(len(frame), dtype=bool)
    for name in requests:
        near &= frame[name].isin(requests[name]).to_numpy()
    return frame.loc[near, list(requests)]


def _hashes(frame: pd.DataFrame) -> pd.Series:
    import pandas as pd

    return pd.util.hash_pandas_object(frame, index=False)


def write_golden(folder: Path, requests: pd.DataFrame, score: Score, kind: Kind) -> None:
    """Write the requests, their files below `golden/`, and the artifact's answers to them."""
    import pandas as pd

    named = _write_files(folder, requests)
    answers = _as_columns(score(_with_files(folder, named)), kind)
    pd.concat([named, pd.DataFrame(answers, index=named.index)], axis=1).to_parquet(folder / FILE, index=False)


def made_columns(requests: pd.DataFrame) -> dict[str, FileKind]:
    """The columns of files that are made and not yet written, with what the files are."""
    firsts = {str(name): value for name in requests for value in requests[name].head(1)}
    return {name: value.kind for name, value in firsts.items() if isinstance(value, MadeFile)}


def _write_files(folder: Path, requests: pd.DataFrame) -> pd.DataFrame:
    """Each different file once; the requests with the files' names relative to the artifact."""
    named: dict[str, list[str]] = {}
    for number, column in enumerate(made_columns(requests)):
        names: dict[MadeFile, str] = {}
        for made in requests[column]:
            names.setdefault(made, f"{FILES}/{number}_{len(names)}{made.suffix}")
        (folder / FILES).mkdir(exist_ok=True)
        for made, name in names.items():
            (folder / name).write_bytes(made.data)
        named[column] = [names[made] for made in requests[column]]
    return with_columns(requests, named)


def _with_files(folder: Path, requests: pd.DataFrame) -> pd.DataFrame:
    """The requests as a model is asked: with the absolute Paths of their files."""
    columns = file_columns(folder)
    return with_columns(requests, {name: _paths(folder, requests[name]) for name in columns}) if columns else requests


def _paths(folder: Path, names: pd.Series) -> pd.Series:
    import pandas as pd

    return pd.Series([folder.resolve() / name for name in names], index=names.index, dtype=object)


def file_columns(folder: Path) -> dict[str, FileKind | None]:
    """The features of an artifact that are files, with what they are: None in artifacts from before that was kept."""
    path = folder / FILE_COLUMNS
    columns: Any = json.loads(path.read_text()) if path.is_file() else {}
    return dict.fromkeys(columns) if isinstance(columns, list) else columns


def read_golden(folder: Path, kind: Kind) -> Golden | None:
    """Requests and answers on record of a verified artifact of this kind; None if it was written without."""
    import pandas as pd

    path = folder / FILE
    if not path.is_file():
        return None
    table = pd.read_parquet(path)
    names = _columns(kind)
    answers = table[names].to_numpy(dtype="float64").reshape(len(table), *_shape(kind))
    return Golden(_with_files(folder, table.drop(columns=names)), answers)


def _shape(kind: Kind) -> tuple[int, ...]:
    """Of what is compared of an answer."""
    return kind.answer_shape if len(kind.answer_shape) < 2 else (min(math.prod(kind.answer_shape), _MOST_NUMBERS),)


def _columns(kind: Kind) -> list[str]:
    """Columns of the answers: named as they are where they are few, numbered else."""
    names = kind.answer_names if len(kind.answer_shape) < 2 else [str(at) for at in range(_shape(kind)[0])]
    return [f"{_ANSWER}:{name}" if name else _ANSWER for name in names]


def _compared(answers: np.ndarray, kind: Kind) -> np.ndarray:
    """Answers `(N, *answer_shape)`, or of pictures the numbers that are compared, `(N, K)`."""
    import numpy as np

    if len(kind.answer_shape) < 2:
        return answers
    numbers = answers.reshape(len(answers), -1)
    return numbers[:, np.linspace(0, numbers.shape[1] - 1, _shape(kind)[0]).astype(int)]


def _as_columns(answers: np.ndarray, kind: Kind) -> dict[str, np.ndarray]:
    return dict(zip(_columns(kind), _compared(answers, kind).reshape(len(answers), -1).T, strict=True))


def answer_golden(golden: Golden, score: Score, kind: Kind) -> GoldenAnswers:
    """Answer the requests again."""
    answers = _compared(score(golden.requests), kind)
    difference = largest_difference(golden.answers, answers, kind.answer_scale(golden.answers))
    # JSON has no infinity; any difference above 1 fails all the same.
    return GoldenAnswers(requests=len(golden.requests), difference=min(difference, 2.0))


def largest_difference(evaluated: Any, served: Any, scale: Any = 1.0) -> float:
    """Largest absolute difference of two arrays, each as a share of its `scale` (Kind.answer_scale).

    Infinite if shapes differ or a value is not finite.
    """
    import numpy as np

    evaluated, served = np.asarray(evaluated, dtype=np.float64), np.asarray(served, dtype=np.float64)
    if evaluated.shape != served.shape or not evaluated.size:
        return math.inf
    difference = np.abs(evaluated - served)
    return float((difference / scale).max()) if np.isfinite(difference).all() else math.inf
