"""What a folder's files hold: each is opened once, and all that no model could read is told, counted, with examples."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from PIL.Image import Image

from trainworthy.lifecycle.data.file_rows import MOST_BYTES
from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.files.decode import MASK_MODES, MOST_PIXELS
from trainworthy.lifecycle.files.pictures import open_picture
from trainworthy.lifecycle.files.tree import in_threads
from trainworthy.lifecycle.tasks.words import has_unspaced
from trainworthy.pipeline.scaffold.folder import CLASSES_FILE, Folder, shown

_GREY = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "F")
# A number of a mask is the place of a class, and so many classes fit into a byte.
MOST_CLASSES = 256
# What image editors write for no and yes.
BLACK_AND_WHITE = (0, 255)


@dataclass(frozen=True)
class FileFacts:
    """One file: in words what is wrong with it; of texts the bytes without white space around them, and
    whether there are words without blanks between them; of pictures height,
    width and Pillow's mode; of masks also how many pixels have each value."""

    wrong: str = ""
    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    values: tuple[tuple[int, int], ...] = ()
    bytes: int = 0
    unspaced: bool = False


@dataclass(frozen=True)
class Contents:
    """What is known of all files. `converts` says that masks hold 0 and 255, which the copies have as 0 and 1."""

    pictures: tuple[FileFacts, ...] = ()
    texts: tuple[FileFacts, ...] = ()
    classes: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    converts: bool = False
    repeated: int = 0

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width that all pictures have; None where they differ."""
        sizes = {picture.size for picture in self.pictures}
        return next(iter(sizes)) if len(sizes) == 1 else None

    @property
    def usual_size(self) -> tuple[int, int]:
        """Median height and width."""
        heights, widths = zip(*(picture.size for picture in self.pictures), strict=True)
        return round(statistics.median(heights)), round(statistics.median(widths))

    @property
    def is_coloured(self) -> bool:
        return any(picture.mode not in _GREY for picture in self.pictures)

    @property
    def has_unspaced(self) -> bool:
        """Whether texts have words without blanks between them."""
        return any(text.unspaced for text in self.texts)

    @property
    def is_deep(self) -> bool:
        """Whether a point of some has sixteen bits, which Pillow does not scale."""
        return any(picture.mode.startswith("I") for picture in self.pictures)


def read_contents(path: Path, folder: Folder) -> tuple[Contents | None, list[Problem]]:
    """What the files hold; None and every problem."""
    is_text = folder.form in ("texts", "documents")
    look = functools.partial(_look, path, is_text=is_text, may_be_empty=folder.form == "documents")
    files = in_threads(look, [*folder.files], f"opening {folder.noun}s")
    problems = list(_unreadable(path, folder.noun, folder.files, files))
    repeated = len(files) - len({file.sha256 for file in files})
    if is_text:
        return (None, problems) if problems else (Contents(texts=tuple(files), repeated=repeated), [])
    if folder.form == "pictures":
        return (None, problems) if problems else (Contents(pictures=tuple(files), repeated=repeated), [])
    masks = in_threads(functools.partial(_look, path, is_mask=True), [*folder.masks], "opening masks")
    problems += _unreadable(path, "mask", folder.masks, masks)
    if problems:
        return None, problems
    names, problems = _named_classes(path)
    problems += _sizes(path, folder, files, masks)
    classes, converts, class_problems = _classes(path, folder, masks, names)
    problems += class_problems
    if problems:
        return None, problems
    counts = Counter({value: 0 for value in range(len(classes))})
    for mask in masks:
        counts.update({min(value, 1) if converts else value: count for value, count in mask.values})
    shares = tuple(counts[value] / counts.total() for value in range(len(classes)))
    return Contents(tuple(files), (), classes, shares, converts, repeated), []


def _look(
    folder: Path, name: PurePosixPath, *, is_text: bool = False, may_be_empty: bool = False, is_mask: bool = False
) -> FileFacts:
    path = folder / name
    size = path.stat().st_size
    if size > MOST_BYTES:
        return FileFacts(f"it has {size:,} bytes, more than {MOST_BYTES:,}")
    data = path.read_bytes()
    if not data and not may_be_empty:
        return FileFacts("it is empty (0 bytes)")
    try:
        facts = _text(data, may_be_empty) if is_text else _picture(data, is_mask=is_mask)
    except Exception as error:  # Decoders of damaged bytes raise whatever they like.
        # Without the address of what was read, which says nothing.
        said = re.sub(r" <_io\.BytesIO object at \w+>", "", " ".join(str(error).split()))
        return FileFacts(f"{type(error).__name__}: {said[:120]}")
    return dataclasses.replace(facts, sha256=hashlib.sha256(data).hexdigest())


def _text(data: bytes, may_be_empty: bool) -> FileFacts:
    text = data.decode("utf-8-sig").strip()
    wrong = "" if text or may_be_empty else "it holds white space alone"
    return FileFacts(wrong, bytes=len(text.encode()), unspaced=has_unspaced(text))


def _picture(data: bytes, *, is_mask: bool) -> FileFacts:
    with open_picture(io.BytesIO(data)) as image:
        width, height = image.size
        if width * height > MOST_PIXELS:
            return FileFacts(f"it has {width * height:,} pixels, more than {MOST_PIXELS:,}")
        image.load()
        values = _values(image) if is_mask and image.mode in MASK_MODES else ()
        return FileFacts("", "", (height, width), image.mode, values)


def _values(image: Image) -> tuple[tuple[int, int], ...]:
    values, counts = np.unique(np.asarray(image).astype(np.int64), return_counts=True)
    return tuple(zip(values.tolist(), counts.tolist(), strict=True))


def _unreadable(path: Path, noun: str, names: Sequence[PurePosixPath], files: Sequence[FileFacts]) -> Iterator[Problem]:
    wrong = [(name, facts.wrong) for name, facts in zip(names, files, strict=True) if facts.wrong]
    if wrong:
        first = "; ".join(f"{str(name)!r}: {why}" for name, why in wrong[:3])
        more = f"; and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        problem = f"{len(wrong):,} of {len(names):,} {noun}s can't be read: {first}{more}"
        fix = "repair them or take them out"
        if noun == "text" and any("codec" in why for _, why in wrong):
            fix += "; save texts as UTF-8, for example iconv -f cp1252 -t utf-8 OLD.txt > NEW.txt, if they are cp1252"
        yield Problem("--data", problem, fix, str(path))


def _named_classes(path: Path) -> tuple[tuple[str, ...], list[Problem]]:
    """The names in classes.txt, a name a line; () without the file."""
    file = path / CLASSES_FILE
    if not file.is_file():
        return (), []
    try:
        names = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        return (), [Problem(CLASSES_FILE, f"is not UTF-8: {error}", "save it as UTF-8")]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if len(names) < 2 or len(names) > MOST_CLASSES or twice:
        problem = f"names {len(names)} classes" + (f", and twice {shown(twice)}" if twice else "")
        fix = "write a name a line, for the pixel values 0, 1, … in this order; at least two"
        return (), [Problem(CLASSES_FILE, problem, fix, str(file))]
    return tuple(names), []


def _sizes(path: Path, folder: Folder, pictures: Sequence[FileFacts], masks: Sequence[FileFacts]) -> Iterator[Problem]:
    """A mask lies on its picture, and all masks of a training in one array."""
    other = [
        f"{str(name)!r} is {_sides(picture.size)} and its mask {_sides(mask.size)}"
        for name, picture, mask in zip(folder.files, pictures, masks, strict=True)
        if picture.size != mask.size
    ]
    if other:
        problem = f"{len(other):,} of {len(masks):,} masks have another size than their picture: {'; '.join(other[:3])}"
        fix = "write each mask in the size of its picture, resized by the nearest pixel (Image.Resampling.NEAREST)"
        yield Problem("--data", problem, fix, str(path))
        return
    sizes = Counter(mask.size for mask in masks)
    if len(sizes) > 1:
        usual = ", ".join(f"{_sides(size)} ({count:,})" for size, count in sizes.most_common(3))
        problem = f"the masks have {len(sizes):,} sizes, height × width: {usual}"
        fix = "cut or resize pictures and masks to one size; masks by the nearest pixel (Image.Resampling.NEAREST)"
        yield Problem("--data", problem, fix, str(path))


def _sides(size: tuple[int, int]) -> str:
    return f"{size[0]} × {size[1]}"


def _classes(
    path: Path, folder: Folder, masks: Sequence[FileFacts], names: tuple[str, ...]
) -> tuple[tuple[str, ...], bool, list[Problem]]:
    """The classes in the order of the pixels' values, whether the masks are to be converted, and what is wrong."""
    coloured = [
        (name, mask.mode) for name, mask in zip(folder.masks, masks, strict=True) if mask.mode not in MASK_MODES
    ]
    if coloured:
        modes = ", ".join(sorted({mode for _, mode in coloured}))
        counted = f"{len(coloured):,} of {len(masks):,} masks hold colours ({modes}), not a class a pixel"
        problem = f"{counted}: {shown([name for name, _ in coloured])}"
        fix = (
            "write PNG of one channel with 0, 1, … for the classes: of grey ones Image.open(path).convert('L'), of "
            "colours a whole number for each colour"
        )
        return (), False, [Problem("--data", problem, fix, str(path))]
    held = Counter(value for mask in masks for value, _ in mask.values)
    values = sorted(held)
    if len(values) < 2:
        problem = f"all pixels of all {len(masks):,} masks are {values[0]}, so there is one class only"
        return (), False, [Problem("--data", problem, "give masks in which a second class is marked", str(path))]
    if tuple(values) == BLACK_AND_WHITE:
        return _numbered(path, 2, names, True)
    least, most = values[0], values[-1]
    if least < 0 or most >= MOST_CLASSES or (names and most >= len(names)) or (not names and len(values) <= most):
        return (), False, [_other_values(path, folder, masks, values, names)]
    return _numbered(path, most + 1, names, False)


def _numbered(
    path: Path, count: int, names: tuple[str, ...], converts: bool
) -> tuple[tuple[str, ...], bool, list[Problem]]:
    if converts and names and len(names) != count:
        fix = "name the class of 0 first and that of 255 second, and no other"
        problem = Problem(CLASSES_FILE, f"names {len(names)} classes, and the masks hold 0 and 255", fix, str(path))
        return (), False, [problem]
    return names or tuple(f"class_{place}" for place in range(count)), converts, []


def _other_values(
    path: Path, folder: Folder, masks: Sequence[FileFacts], values: Sequence[int], names: tuple[str, ...]
) -> Problem:
    most = len(names) - 1 if names else len(values) - 1
    beyond = [value for value in values if not 0 <= value <= most]
    held = {
        value: [name for name, mask in zip(folder.masks, masks, strict=True) if value in dict(mask.values)]
        for value in beyond
    }
    # The rarest value first: a slip in one mask lies beside one that all others hold.
    rarest = sorted(held.items(), key=lambda item: len(item[1]))
    files = [name for _, names_of in rarest for name in names_of]
    counted = "; ".join(
        f"{len(names_of):,} of {len(masks):,} masks hold {value}: {shown(names_of)}" for value, names_of in rarest[:5]
    )
    more = f"; and {len(rarest) - 5:,} more values" if len(rarest) > 5 else ""
    problem = f"pixels of masks are the places of their classes, here 0 to {most}, and {counted}{more}"
    fix = f"write 0, 1, … for the classes, without gaps; or name every value's class in {CLASSES_FILE}, a name a line"
    if values[-1] == 255:
        fix += "; 255 often means that nobody has looked there: give these pixels a class"
    if any(PurePosixPath(name).suffix.lower() in (".jpg", ".jpeg") for name in files):
        fix += "; JPEG changes values: write masks as PNG"
    return Problem("--data", problem, fix, str(path))
