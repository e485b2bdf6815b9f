"""Masks as files: a picture of one channel whose pixels hold the place of their class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.files.pictures import open_picture


def read_masks(paths: Sequence[Path], classes: int) -> np.ndarray:
    """The masks of files, uint8 `(N, height, width)`. Raises EvaluationError where one has another size or a class
    beyond the declared ones."""
    masks = [read_mask(path, classes) for path in paths]
    other = next((at for at, mask in enumerate(masks) if mask.shape != masks[0].shape), None)
    if other is not None:
        raise EvaluationError(
            "the masks have different sizes",
            value=f"{paths[0].name} {masks[0].shape}, {paths[other].name} {masks[other].shape}",
            fix="bring pictures and masks to one size once, where the dataset is made",
        )
    return np.stack(masks)


def read_mask(path: Path, classes: int) -> np.ndarray:
    """One mask, uint8 `(height, width)`. Raises EvaluationError, naming the file."""
    try:
        with open_picture(path) as picture:
            # A palette's numbers are the classes, not its colours; black and white are 0 and 1.
            pixels = np.asarray(picture)
    except (OSError, ValueError) as error:
        fix = "write masks as PNG of one channel"
        raise EvaluationError(f"the mask {path.name} can't be read: {error}", value=str(path), fix=fix) from None
    if pixels.ndim != 2 or pixels.dtype.kind not in "iub":
        fix = "write one whole number a pixel, the place of its class: PNG of mode L or P, not RGB"
        raise EvaluationError(
            f"the mask {path.name} holds no class a pixel", value=f"{pixels.shape} {pixels.dtype}", fix=fix
        )
    if pixels.size and (int(pixels.max()) >= classes or int(pixels.min()) < 0):
        wrong = pixels[(pixels >= classes) | (pixels < 0)]
        raise EvaluationError(
            f"the mask {path.name} holds {len(wrong)} pixels of no declared class",
            value=int(wrong[0]),
            fix="name every class in contract.yaml (label: classes), in the order of the pixels' values, from 0 on",
        )
    return pixels.astype(np.uint8)
