"""A folder of files as the first part of a dataset, and the network that is drafted for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL.Image import fromarray

from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.pipeline.scaffold.contents import Contents
from trainworthy.pipeline.scaffold.folder import Folder
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.pipeline.scaffold.target import FoundTarget

PART = "part-0001"
# Longest side to which the drafted networks bring a picture. An update of 16 masks took 0.10 s of a core with 64 pixels
# a side, 0.27 s with 96 and 0.66 s with 128; some 650 updates are planned.
MOST_SIDE, MOST_SIDE_OF_MASKS, LEAST_SIDE = 64, 96, 16
WORDS = 2048


@dataclass(frozen=True)
class FoundFiles:
    """A folder at `path` with what was read of it."""

    path: Path
    folder: Folder
    contents: Contents

    @property
    def column(self) -> FileKind:
        """The kind of the column of inputs, which is its name too."""
        return "text" if self.folder.form in ("texts", "documents") else "picture"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width to which the network brings a picture, in its own proportions."""
        height, width = self.contents.usual_size
        most = MOST_SIDE_OF_MASKS if self.folder.form == "masks" else MOST_SIDE
        scale = min(1.0, most / max(height, width))
        return max(LEAST_SIDE, round(height * scale)), max(LEAST_SIDE, round(width * scale))

    @property
    def mode(self) -> str:
        """Pillow's, in which pictures are read."""
        return "RGB" if self.contents.is_coloured else "L"

    @property
    def row_bytes(self) -> int:
        """What a row's tensors take: what the network is given as float32, and a mask as int64 in its own size."""
        if self.folder.form == "texts":
            return 4 * WORDS
        inputs = 4 * self.size[0] * self.size[1] * len(self.mode)
        return inputs + (8 * math.prod(self.contents.usual_size) if self.folder.form == "masks" else 0)

    @property
    def things(self) -> str:
        """Of what there may be several files."""
        return "author, case or thread" if self.column == "text" else "patient, place or video"

    def sizes_text(self, read_as: tuple[int, int] | None = None) -> str:
        """Sizes and colours of the pictures, and the size in which the network reads them, their own if not given."""
        read_as = read_as or self.size
        height, width = self.contents.usual_size
        same = self.contents.size is not None
        sizes = f"all are {height} × {width} pixels" if same else f"sizes differ, {height} × {width} in the middle"
        colours = "in colours" if self.contents.is_coloured else "grey"
        return f"{sizes}, {colours}; the network reads them as {read_as[0]} × {read_as[1]} (SIZE in model.py)"

    def place(self, folder: Path) -> None:
        """Lay the first part out below `folder`: links to the user's files, since whoever reads them makes a copy."""
        if self.folder.form != "masks":
            link(self.path, {name: name for name in self.folder.files}, folder / PART)
            return
        stems = [PurePosixPath(_stem(name, self.folder)) for name in self.folder.files]
        pairs = [*zip(stems, self.folder.files, self.folder.masks, strict=True)]
        link(self.path, {name: "images" / _named(stem, name.suffix) for stem, name, _ in pairs}, folder / PART)
        masks = {mask: "masks" / _named(stem, mask.suffix) for stem, _, mask in pairs}
        if not self.contents.converts:
            link(self.path, masks, folder / PART)
            return
        for mask, name in masks.items():
            _write_as_places(self.path / mask, folder / PART / name.with_suffix(".png"))

    def model_text(self, name: str, target: FoundTarget, column: str | None = None, unit: float | None = None) -> str:
        """The drafted model.py that reads `column` alone; `unit` is the spread of a number that is predicted."""
        given: dict[str, Any] = {
            "name": name, "task": target.task, "positive": target.positive, "column": column or self.column,
            "unit": unit,
        }  # fmt: skip
        if self.folder.form == "texts":
            return rendered("model_texts.py.j2", **given, unspaced=self.contents.has_unspaced)
        template = "model_masks.py.j2" if self.folder.form == "masks" else "model_pictures.py.j2"
        return rendered(template, **given, size=self.size, mode=self.mode, deep=self.contents.is_deep)


def _named(stem: PurePosixPath, suffix: str) -> PurePosixPath:
    """With `with_suffix` a name with a dot would lose what follows it."""
    return stem.parent / f"{stem.name}{suffix}"


def _stem(name: PurePosixPath, folder: Folder) -> str:
    """The name of a pair: the picture's path without suffix, and without the folder of the pictures."""
    inner = PurePosixPath(*name.parts[1:]) if len(folder.files[0].parts) > 1 else name
    return (inner.parent / inner.stem).as_posix()


def link(source: Path, names: dict[PurePosixPath, PurePosixPath], target: Path) -> None:
    """Links to files below `source` under other names below `target`."""
    for name, target_name in names.items():
        path = target / target_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to((source / name).resolve())


def _write_as_places(mask: Path, target: Path) -> None:
    """A mask of 0 and 255 as one of 0 and 1."""
    from trainworthy.lifecycle.files.pictures import open_picture

    with open_picture(mask) as image:
        places = (np.asarray(image).astype(np.int64) > 0).astype(np.uint8)
    target.parent.mkdir(parents=True, exist_ok=True)
    fromarray(places).save(target)
