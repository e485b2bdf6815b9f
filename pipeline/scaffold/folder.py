"""What a folder of files is, by its names alone: files in a folder for each class, pictures beside masks, or texts.

Four forms are read: `shapes/circle/001.png` (a folder for each class, of pictures or of texts), a picture
`scenes/images/001.png` with its mask `scenes/masks/001.png`, `001.png` beside `001_mask.png`, and `tales/001.txt`, a
text without a class: where a language model is asked for, folders are none. Every other form is one error that says
what was seen. Nothing is opened.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.spec.task import KindName

Form = Literal["pictures", "texts", "masks", "documents"]
# What to do with sounds, signals and the like.
AS_ARRAYS = 'make .npy arrays of them: docs/how-to/files.md, "Arrays beside a table"'
PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
TEXTS = (".txt",)
CLASSES_FILE = "classes.txt"
# In the order in which they are looked for: the first folder of each list that is there counts.
OF_PICTURES = ("images", "image", "img", "imgs", "jpegimages", "pictures")
OF_MASKS = ("masks", "mask", "segmentationclass", "annotations", "annotation", "labels")
MASK_END = re.compile(r"[_-]mask$", re.IGNORECASE)
# Of a data set that somebody has split already.
OF_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing", "dev"}
# Files of other kinds beside those that count, such as a README: more of them than this say that it is another folder.
MOST_OTHERS = 20
# A folder above one's data can hold a whole disk.
MOST_FILES = 1_000_000
# What stands before the first _ or - of a file's name.
_PREFIX = re.compile(r"([^_-]+)[_-].")
_SYSTEM = {"thumbs.db", "desktop.ini"}
_SHOWN = 3
# What to do with folders of texts that are none of classes.
NO_CLASSES = "or --kind language_model, if the folders are no classes and the texts are to be gone on with"


@dataclass(frozen=True)
class Folder:
    """The files that count, relative to the folder, each list in order.

    `masks` lie beside the pictures of the same place. `folders` and `prefixes` say of each file what may name its
    group: the folder that it lies in below its class, and what its name begins with; empty where the files have none.
    """

    form: Form
    files: tuple[PurePosixPath, ...]
    classes: tuple[str, ...] = ()
    masks: tuple[PurePosixPath, ...] = ()
    folders: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """What a row's file is called."""
        return "text" if self.form in ("texts", "documents") else "picture"


@dataclass
class _Names:
    """All files below the folder by what they are."""

    pictures: list[PurePosixPath] = field(default_factory=list)
    texts: list[PurePosixPath] = field(default_factory=list)
    others: list[PurePosixPath] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    has_classes: bool = False
    too_many: bool = False


def read_folder(
    path: Path, group: str | None = None, kind: KindName | None = None
) -> tuple[Folder | None, list[Problem]]:
    """The form of a folder; None and what is wrong. `group` is `folder` where files may lie one level deeper.

    `kind` is as asked: of a language model, folders are no classes.
    """
    names = _names(path)
    problems = list(_wrong_names(path, names))
    if problems:
        return None, problems
    flat = bool(names.texts) and not names.pictures and all(len(name.parts) == 1 for name in names.texts)
    if kind == "language_model" or (kind is None and flat):
        form = _documents(path, names)
    else:
        form = _paired(path, names) or _by_class(path, names, group)
    return (form, []) if isinstance(form, Folder) else (None, [form])


def shown(names: Sequence[object], most: int = _SHOWN) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + more


def _names(folder: Path) -> _Names:
    names, inside = _Names(), folder.resolve()
    count = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        names.links += [Path(parent, name).relative_to(folder).as_posix() for name in linked]
        for name in sorted(files):
            count += 1
            if count > MOST_FILES:
                names.too_many = True
                return names
            _sort_in(names, Path(parent, name), folder, inside)
    return names


def _sort_in(names: _Names, path: Path, folder: Path, inside: Path) -> None:
    if path.name.startswith(".") or path.name.lower() in _SYSTEM:
        return
    relative = PurePosixPath(path.relative_to(folder).as_posix())
    if path.is_symlink() and not path.resolve().is_relative_to(inside):
        names.links.append(str(relative))
    elif not _is_usable(str(relative)):
        names.unusable.append(str(relative).encode("utf-8", "replace").decode())
    elif str(relative) == CLASSES_FILE:
        names.has_classes = True
    elif relative.suffix.lower() in PICTURES:
        names.pictures.append(relative)
    elif relative.suffix.lower() in TEXTS:
        names.texts.append(relative)
    else:
        names.others.append(relative)


def _is_usable(name: str) -> bool:
    """Whether a table can hold the name: as UTF-8, and without what no path of a dataset may hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in name and "\n" not in name


def _wrong_names(path: Path, names: _Names) -> Iterator[Problem]:
    where = str(path)
    if names.too_many:
        fix = "name the folder of the pictures or texts alone"
        yield Problem("--data", f"holds more than {MOST_FILES:,} files", fix, where)
        return
    if names.links:
        problem = f"{len(names.links):,} links lead out of the folder or to folders: {shown(names.links)}"
        yield Problem("--data", problem, "put the files themselves there", where)
    if names.unusable:
        problem = f"{len(names.unusable):,} names can't be written into a table: {shown(names.unusable)}"
        yield Problem("--data", problem, "rename them: no backslash, no line break, UTF-8", where)
    usable = len(names.pictures) + len(names.texts)
    kinds = f"pictures ({', '.join(PICTURES)}) nor texts ({', '.join(TEXTS)})"
    if not usable and not names.others:
        yield Problem("--data", "the folder is empty", "name a folder with pictures or texts, a folder a class", where)
    elif len(names.others) > max(MOST_OTHERS, usable // 20):
        problem = f"{len(names.others):,} files are neither {kinds}: {_suffixes(names.others)}"
        fix = (
            "take them out or convert them (plain texts can be copied as .txt); a table is named as a "
            f".csv or .parquet file, not as its folder; sounds and signals: {AS_ARRAYS}"
        )
        yield Problem("--data", problem, fix, where)
    elif not usable:
        fix = "name a folder with pictures or texts (plain texts can be copied as .txt), or a .csv or .parquet file"
        yield Problem("--data", f"its files are neither {kinds}: {_suffixes(names.others)}", fix, where)


def _suffixes(files: Sequence[PurePosixPath]) -> str:
    counts = Counter(path.suffix.lower() or "without suffix" for path in files)
    return ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common(_SHOWN))


def _paired(path: Path, names: _Names) -> Folder | Problem | None:
    """Pictures and masks; None where the names are none of a folder of masks."""
    tops = {name.parts[0].lower(): name.parts[0] for name in names.pictures if len(name.parts) > 1}
    pictures = next((tops[name] for name in OF_PICTURES if name in tops), None)
    masks = next((tops[name] for name in OF_MASKS if name in tops), None)
    if pictures is not None and masks is not None:
        of = {top: [name for name in names.pictures if name.parts[0] == top] for top in (pictures, masks)}
        left_out = [name for name in names.pictures if name.parts[0] not in of]
        pairs = _pairs(path, _by_stem(of[pictures], 1), _by_stem(of[masks], 1, is_mask=True))
        return _with_left_out(pairs, (*left_out, *names.texts, *names.others))
    flat = [name for name in names.pictures if len(name.parts) == 1]
    if any(MASK_END.search(name.stem) for name in flat):
        of_masks = [name for name in flat if MASK_END.search(name.stem)]
        rest = [name for name in flat if not MASK_END.search(name.stem)]
        left_out = [name for name in names.pictures if len(name.parts) > 1]
        pairs = _pairs(path, _by_stem(rest, 0), _by_stem(of_masks, 0, is_mask=True))
        return _with_left_out(pairs, (*left_out, *names.texts, *names.others))
    return None


def _with_left_out(folder: Folder | Problem, left_out: Sequence[PurePosixPath]) -> Folder | Problem:
    """With the files that do not count."""
    if isinstance(folder, Problem) or not left_out:
        return folder
    return Folder(**{**vars(folder), "left_out": (f"other files ({_suffixes(left_out)})",)})


def _by_stem(files: Sequence[PurePosixPath], first: int, *, is_mask: bool = False) -> dict[str, list[PurePosixPath]]:
    """Files by what a picture and its mask share: the path from part `first` on, without its suffix."""
    by_stem: dict[str, list[PurePosixPath]] = {}
    for name in files:
        stem = PurePosixPath(*name.parts[first:]).with_suffix("").as_posix()
        by_stem.setdefault(MASK_END.sub("", stem) if is_mask else stem, []).append(name)
    return by_stem


def _pairs(
    path: Path, pictures: dict[str, list[PurePosixPath]], masks: dict[str, list[PurePosixPath]]
) -> Folder | Problem:
    twice = [stem for names in (pictures, masks) for stem, files in names.items() if len(files) > 1]
    if twice:
        problem = f"{len(twice):,} names are there with several suffixes, so that no pair is certain: {shown(twice)}"
        return Problem("--data", problem, "keep one file of each name", str(path))
    alone = [pictures[stem][0] for stem in sorted(pictures.keys() - masks.keys())]
    widowed = [masks[stem][0] for stem in sorted(masks.keys() - pictures.keys())]
    if alone or widowed:
        problems = [f"{len(alone):,} of {len(pictures):,} pictures have no mask: {shown(alone)}"] if alone else []
        problems += [f"{len(widowed):,} of {len(masks):,} masks have no picture: {shown(widowed)}"] if widowed else []
        fix = (
            "give each picture a mask of the same name (all of the first class where there is nothing to be found), or "
            "take it out"
        )
        return Problem("--data", "; ".join(problems), fix, str(path))
    stems = sorted(pictures)
    files = tuple(pictures[stem][0] for stem in stems)
    inner = tuple(PurePosixPath(stem).parent.as_posix() for stem in stems)
    folders = inner if any(folder != "." for folder in inner) else ()
    return Folder("masks", files, (), tuple(masks[stem][0] for stem in stems), folders, _prefixes(files))


def _prefixes(files: Sequence[PurePosixPath]) -> tuple[str, ...]:
    """What each file's name begins with; () where one has nothing before a _ or -."""
    prefixes = [_PREFIX.match(name.stem) for name in files]
    return tuple(str(match and match[1]) for match in prefixes) if all(prefixes) else ()


def _documents(path: Path, names: _Names) -> Folder | Problem:
    """Texts, wherever they lie."""
    if names.pictures:
        problem = f"a language_model is of texts, and the folder holds {len(names.pictures):,} pictures"
        return Problem("--data", f"{problem}: {shown(names.pictures, 1)}", "take them out", str(path))
    files = tuple(names.texts)
    inner = tuple(name.parent.as_posix() for name in files)
    left_out = (f"other files ({_suffixes(names.others)})",) if names.others else ()
    folders = inner if len(set(inner)) > 1 else ()
    return Folder("documents", files, (), (), folders, _prefixes(files), left_out)


def _by_class(path: Path, names: _Names, group: str | None) -> Folder | Problem:
    """A folder for each class; or why it is none."""
    where = str(path)
    if names.pictures and names.texts:
        message = (
            f"holds both {len(names.pictures):,} pictures ({shown(names.pictures, 1)}) and {len(names.texts):,} texts "
            f"({shown(names.texts, 1)})"
        )
        return Problem("--data", message, "name a folder of one of them, or take the others out", where)
    files = names.pictures or names.texts
    noun = "pictures" if names.pictures else "texts"
    flat = [name for name in files if len(name.parts) == 1]
    tops = sorted({name.parts[0] for name in files if len(name.parts) > 1})
    if problem := _flat(where, noun, flat, tops):
        return problem
    inner = sorted({name.parts[1] for name in files if len(name.parts) > 2})
    if {name.lower() for name in tops} <= OF_SPLITS and inner:
        fix = (
            f"put all files of a class into one folder of its name, or name {path.name}/{tops[0]}; rows are split anew"
        )
        return Problem("--data", f"its folders {shown(tops)} are splits, not classes", fix, where)
    if len(tops) == 1:
        inside = shlex.quote(str(path / tops[0]))
        deeper = f"; its classes may lie one level deeper: --data {inside}" if len(inner) > 1 else ""
        message = f"there is one class only, the folder {tops[0]!r}"
        alone = f"; {NO_CLASSES}" if names.texts else ""
        return Problem("--data", message, f"give a folder for each of two classes or more{deeper}{alone}", where)
    if bare := [name for name in _top_folders(path) if name not in tops]:
        message = f"{len(bare):,} of the folders hold no {noun}: {shown(bare)}"
        return Problem("--data", message, f"put the {noun} of these classes there, or take the folders out", where)
    levels = 3 if group == "folder" else 2
    deep = [name for name in files if len(name.parts) != levels]
    if deep:
        return _wrong_level(where, noun, deep, files, group)
    left_out = (f"other files ({_suffixes(names.others)})",) if names.others else ()
    # A patient or a video of one name in two classes is one.
    folders = tuple(name.parts[1] for name in files) if levels == 3 else ()
    return Folder(
        "pictures" if names.pictures else "texts", tuple(files), tuple(name.parts[0] for name in files), (), folders,
        _prefixes(files), left_out,
    )  # fmt: skip


def _top_folders(path: Path) -> list[str]:
    return sorted(
        entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__MACOSX"))
    )


def _flat(where: str, noun: str, flat: Sequence[PurePosixPath], tops: Sequence[str]) -> Problem | None:
    if flat and tops:
        problem = f"{len(flat):,} {noun} lie beside the folders of the classes: {shown(flat)}"
        fix = "put each into the folder of its class, or take them out"
        return Problem("--data", problem, f"{fix}; {NO_CLASSES}" if noun == "texts" else fix, where)
    if flat and noun == "texts":
        problem = f"holds {len(flat):,} texts and no folder for each class: {shown(flat)}"
        fix = "give a folder for each class, or leave --kind out: the next byte of texts without classes is predicted"
        return Problem("--data", problem, fix, where)
    if flat:
        problem = f"holds {len(flat):,} pictures and nothing that says what they show: {shown(flat)}"
        fix = "give a folder for each class; or images/ and masks/ with files of the same names; or NAME_mask.png each"
        return Problem("--data", problem, fix, where)
    return None


def _wrong_level(
    where: str, noun: str, deep: Sequence[PurePosixPath], files: Sequence[PurePosixPath], group: str | None
) -> Problem:
    if group == "folder":
        problem = f"{len(deep):,} of {len(files):,} {noun} do not lie in a folder below their class: {shown(deep)}"
        return Problem("--group", problem, "write CLASS/GROUP/FILE for all of them, or leave --group out", group)
    problem = f"{len(deep):,} of {len(files):,} {noun} lie deeper than in the folder of their class: {shown(deep)}"
    fix = "move them up; or --group folder, if each inner folder is about one thing, such as a patient or a video"
    fix += f"; {NO_CLASSES}" if noun == "texts" else ""
    return Problem("--data", problem, fix, where)
