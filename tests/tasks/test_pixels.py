"""Baselines of masks: what a pixel is told by."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.tasks.pixels import pixel_model

SIDE = 4


@pytest.fixture
def rows(tmp_path):
    """Pictures of sixteen bits with an array and a text beside each; bright points are of class 1."""
    random, made, labels = np.random.default_rng(0), [], []
    for row in range(40):
        bright = random.random((SIDE, SIDE)) > 0.5
        Image.fromarray(np.where(bright, 50_000, 20_000).astype(np.uint16)).save(tmp_path / f"{row}.png")
        np.save(tmp_path / f"{row}.npy", np.zeros(3))
        (tmp_path / f"{row}.txt").write_text("P1 outage")
        made.append({name: tmp_path / f"{row}.{ending}" for name, ending in KINDS.items()})
        labels.append(bright)
    return pd.DataFrame(made, dtype=object), np.array(labels, dtype=int)


KINDS = {"array": "npy", "picture": "png", "text": "txt"}


@pytest.mark.parametrize("name", ["linear", "gradient_boosting"])
def test_sixteen_bits_are_seen_beside_arrays_and_texts_and_a_missing_picture_is_answered(rows, name):
    table, labels = rows
    table.loc[[3, 39], "picture"] = None
    predict = pixel_model(name, table.head(30), list(KINDS), labels[:30], 2, 0)
    assert predict is not None
    found = predict(table.tail(10))
    assert ((found[:9, ..., 1] > 0.5) == labels[30:39]).mean() > 0.95
    assert np.allclose(found[9].sum(axis=-1), 1)


def test_without_a_picture_it_says_so(rows):
    table, labels = rows
    with pytest.raises(EvaluationError, match="no feature is a picture"):
        pixel_model("linear", table, ["array", "text"], labels, 2, 0)
