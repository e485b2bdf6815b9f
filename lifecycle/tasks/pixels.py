"""Baselines of masks: a model of each pixel by its colours, those around it at two distances, and its place.

Pictures are brought to the grid of the masks (segmentation.py). What a pixel is told by is made of the picture alone,
so that a network that is not better has learned no shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from PIL import Image
from scipy.ndimage import uniform_filter
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.files.pictures import in_eight_bits, open_picture

if TYPE_CHECKING:
    from trainworthy.lifecycle.tasks.kind import Predictor

# Pixels that a model is fitted on: 30,000 take 0.3 s with five classes, and more change the score in the third digit.
FITTED_PIXELS = 30_000


def pixel_model(
    name: str, training: pd.DataFrame, columns: list[str], labels: np.ndarray, classes: int, seed: int
) -> Predictor | None:
    """Answers `(N, GRID, GRID, classes)` of logistic regression or boosted trees on pixels.

    `labels` are `(N, GRID, GRID)`. None where the training rows hold one class only. Raises EvaluationError where no
    feature is a picture.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return None
    pictures = picture_columns(training, columns)
    side = labels.shape[1]
    generator = np.random.default_rng(seed)
    rows = np.sort(generator.permutation(len(training))[: max(1, FITTED_PIXELS // 64)])
    numbers = _numbers(training.iloc[rows], pictures, side)
    pixels = generator.permutation(numbers.shape[0] * side * side)[:FITTED_PIXELS]
    numbers, known = numbers.reshape(-1, numbers.shape[-1])[pixels], labels[rows].reshape(-1)[pixels]
    present = np.unique(known)
    if len(present) < 2:
        return None
    model = _model(name, seed)
    model.fit(numbers, known)

    def answers(some: pd.DataFrame) -> np.ndarray:
        probabilities = np.zeros((len(some), side, side, classes))
        for at in range(0, len(some), 256):
            of_rows = _numbers(some.iloc[at : at + 256], pictures, side)
            given = model.predict_proba(of_rows.reshape(-1, of_rows.shape[-1]))
            probabilities[at : at + 256, ..., present] = given.reshape(*of_rows.shape[:3], len(present))
        return probabilities

    return answers


def _model(name: str, seed: int) -> Any:
    if name == "gradient_boosting":
        return HistGradientBoostingClassifier(**{"early_stopping": False, "random_state": seed})
    return make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=1000))


def picture_columns(rows: pd.DataFrame, columns: list[str]) -> list[str]:
    """Columns whose files are pictures; arrays and texts beside them have no pixels. Or of what stands at the points of
    the grid already, `(side, side, channels)` each.
    """
    from trainworthy.lifecycle.files.values import is_file_column
    from trainworthy.lifecycle.tasks.file_numbers import form_of

    grids = [name for name in columns if isinstance(rows[name].iloc[0], np.ndarray)]
    if grids:
        return grids
    files = [name for name in columns if is_file_column(rows[name])]
    pictures = [name for name in files if form_of(rows[name].dropna().to_list()).kind in ("grey", "colour")]
    if not pictures:
        raise EvaluationError(
            "no feature is a picture", value=columns, fix="give the picture's column customProperty file: picture"
        )
    return pictures


def _numbers(rows: pd.DataFrame, columns: list[str], side: int) -> np.ndarray:
    """Of each pixel: colours, their means over 3 × 3 and 9 × 9 pixels, and row and column, (N, side, side, F)."""
    pictures = np.concatenate([picture_grids(rows[name], side) for name in columns], axis=-1)
    sizes: Any = [(1, side_of, side_of, 1) for side_of in (3, 9)]
    around = [uniform_filter(pictures, size=size, mode="nearest") for size in sizes]
    place = np.linspace(-1, 1, side)
    squares = [place[:, None] + 0 * place, place + 0 * place[:, None]]
    squares += [square**2 for square in squares]
    where = np.broadcast_to(np.stack(squares, axis=-1), (len(pictures), side, side, len(squares)))
    return np.concatenate([pictures, *around, where], axis=-1)


def picture_grids(paths: pd.Series, side: int) -> np.ndarray:
    """Pictures as colours from 0 to 1, `(N, side, side, 3)`; all grey where there is none. Grids as they are."""
    if isinstance(paths.iloc[0], np.ndarray):
        return np.stack(paths.tolist())
    grids = []
    for path in paths:
        if path is None:
            grids.append(np.full((side, side, 3), 0.5, dtype=np.float32))
            continue
        with open_picture(path) as picture:
            small = in_eight_bits(picture, "RGB").resize((side, side), Image.Resampling.BOX)
        grids.append(np.asarray(small, dtype=np.float32) / 255)
    return np.stack(grids)
