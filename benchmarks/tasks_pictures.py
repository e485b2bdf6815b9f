"""The pictures with masks of benchmarks/tasks.py, as arrays, and what can go wrong with them before anybody trains.

A table of pictures holds arrays where its dataset holds paths: `picture` `(SIDE, SIDE, 3)` and `mask` `(SIDE, SIDE)`,
uint8. So a mutation exchanges pixels as others exchange values; `stored` writes what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from benchmarks.tasks_rows import Mutation, Rows

SIDE, SHEETS, SHEET_PICTURES = 16, 60, 8
GROUND, SQUARE, DISC = range(3)
# A square is more red than its ground, a disc more blue; noise of 25 hides both from one pixel's colour alone.
COLOURS = {SQUARE: (55, 20, -20), DISC: (-20, 20, 55)}
# Columns that hold arrays, and the folder of their files.
FOLDERS = {"picture": "images", "mask": "masks"}
Arrays = Callable[[np.ndarray], np.ndarray]


def shapes(seed: int = 0) -> pd.DataFrame:
    """Sheets of pictures: a square, a disc or both on a ground of the sheet's own colour; most lie at the left."""
    random, rows = np.random.default_rng(seed), []
    for sheet in range(SHEETS):
        ground = random.uniform(80, 140, 3)
        for number in range(SHEET_PICTURES):
            mask = _mask(random)
            colours = np.array([(0, 0, 0), COLOURS[SQUARE], COLOURS[DISC]])[mask]
            picture = ground + colours + random.normal(0, 25, (SIDE, SIDE, 3))
            name = f"s{sheet:02d}_{number:02d}"
            row = {"name": name, "picture": picture.clip(0, 255).astype(np.uint8), "mask": mask}
            rows.append(row | {"prefix": name[:3]})
    return pd.DataFrame(rows)


def _mask(random: np.random.Generator) -> np.ndarray:
    """One or two shapes; the second may cover a part of the first."""
    mask, down, right = np.zeros((SIDE, SIDE), dtype=np.uint8), *np.ogrid[:SIDE, :SIDE]
    for shape in random.permutation([SQUARE, DISC])[: random.integers(1, 3)]:
        half = int(random.integers(2, 5))
        top, left = random.integers(half, SIDE - half), half + int((SIDE - 2 * half) * random.random() ** 2)
        far = np.maximum(abs(down - top), abs(right - left)) if shape == SQUARE else np.hypot(down - top, right - left)
        mask[far <= half] = shape
    return mask


def stored(frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The table with paths below `folder`, where its arrays are written as PNG files; one without arrays as it is."""
    for column, place in FOLDERS.items():
        if column not in frame or not isinstance(frame[column].iloc[0], np.ndarray):
            continue
        (folder / "files" / place).mkdir(parents=True)
        paths = [f"files/{place}/{Path(name).stem}.png" for name in frame["name"]]
        for path, array in zip(paths, frame[column], strict=True):
            Image.fromarray(np.ascontiguousarray(array)).save(folder / path)
        frame = frame.assign(**{column: paths})
    return frame


def opened(files: Path) -> pd.DataFrame:
    """The table of a dataset's folder, with the arrays of its files."""
    frame = pd.concat([pd.read_parquet(path) for path in sorted(files.glob("*.parquet"))], ignore_index=True)
    for column in FOLDERS:
        frame[column] = _arrays([np.asarray(Image.open(files / path)) for path in frame[column]], frame)
    return frame


def _arrays(arrays: list[np.ndarray], frame: pd.DataFrame) -> pd.Series:
    """A column of arrays, one of each row of the table."""
    return pd.Series(arrays, index=frame.index, dtype=object)


def each(column: str, arrays: Arrays) -> Mutation:
    """Each array of the column made anew."""
    return lambda rows, _: rows.frame.assign(
        **{column: _arrays([arrays(one) for one in rows.frame[column]], rows.frame)}
    )


def masks_of(order: Callable[[Rows, np.random.Generator], np.ndarray]) -> Mutation:
    """Each picture with the mask of another one."""
    return lambda rows, random: rows.frame.assign(mask=rows.frame["mask"].to_numpy()[order(rows, random)])


def exchanged(mask: np.ndarray) -> np.ndarray:
    """Discs for squares, and squares for discs."""
    return np.array([GROUND, DISC, SQUARE], dtype=np.uint8)[mask]


def in_second_half_of_training(column: str, arrays: Arrays) -> Mutation:
    """Other arrays in the second half of the training rows, as of a second annotator."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        training = rows.splits["training"]
        later = rows.frame.index.isin(training[len(training) // 2 :])
        pairs = zip(rows.frame[column], later, strict=True)
        return rows.frame.assign(
            **{column: _arrays([arrays(one) if changed else one for one, changed in pairs], rows.frame)}
        )

    return mutate


def held_out_arrays(column: str, arrays: Arrays) -> Mutation:
    """Other arrays in every split but training."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        pairs = zip(rows.frame[column], rows.frame.index.isin(rows.splits["training"]), strict=True)
        return rows.frame.assign(
            **{column: _arrays([one if training else arrays(one) for one, training in pairs], rows.frame)}
        )

    return mutate


def mask_in_blue(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
    """The blue of each pixel tells its class, as of pictures that were saved with their annotation."""
    pairs = zip(rows.frame["picture"], rows.frame["mask"], strict=True)
    pictures = [np.dstack([picture[..., :2], 100 * mask]).astype(np.uint8) for picture, mask in pairs]
    return rows.frame.assign(picture=_arrays(pictures, rows.frame))


def shapes_moved(copies: pd.DataFrame, training: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Pictures under names of their own, on sheets of training."""
    sheets = random.choice(training["prefix"].unique(), len(copies))
    names = [f"{sheet}_{100 + at}" for at, sheet in enumerate(sheets)]
    return copies.assign(name=names, prefix=sheets)


def fewer_with(shape: int, share: float) -> Mutation:
    """Of the pictures with this shape, only the given share: a rare class, and nothing wrong."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        absent = np.array([(mask != shape).all() for mask in rows.frame["mask"]])
        return rows.frame[absent | (random.random(len(rows.frame)) < share)].reset_index(drop=True)

    return mutate


def ground_alike(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
    """Where nothing lies, every pixel of every picture has the same colour."""
    pairs = zip(rows.frame["picture"], rows.frame["mask"], strict=True)
    pictures = [np.where(mask[..., None] == GROUND, 110, picture).astype(np.uint8) for picture, mask in pairs]
    return rows.frame.assign(picture=_arrays(pictures, rows.frame))
