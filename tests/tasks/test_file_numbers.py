"""Files as numbers for the baselines: pictures, arrays and texts, and models that learn from them."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.files.values import as_texts, with_paths
from trainworthy.lifecycle.leakage.unreviewed import alone_aucs
from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.encoding import fit_encoding
from trainworthy.lifecycle.tasks.file_numbers import Form, file_numbers, form_of

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
from file_datasets import picture_dataset


@pytest.fixture
def rows(tmp_path):
    return with_paths(picture_dataset(tmp_path, rows=200, side=16), ["picture"], tmp_path)


def saved(path: Path, values: np.ndarray, **settings) -> Path:
    Image.fromarray(values).save(path, **settings)
    return path


def test_a_picture_is_its_thumbnail_channel_by_channel(tmp_path):
    values = np.zeros((16, 16, 3), dtype=np.uint8)
    values[:2, :2] = (255, 102, 0)
    path = saved(tmp_path / "a.png", values)
    form = form_of([path])
    assert form == Form("colour", 192)
    numbers = file_numbers([path, None], form)
    assert numbers[0, [0, 1, 64, 128]] == pytest.approx([1.0, 0.0, 0.4, 0.0])
    assert np.isnan(numbers[1]).all()


def test_a_grey_picture_has_one_channel_and_sixteen_bits_are_scaled(tmp_path):
    path = saved(tmp_path / "a.png", np.full((8, 8), 65535, dtype=np.uint16))
    assert form_of([path]) == Form("grey", 64)
    assert file_numbers([path], form_of([path])).tolist() == [[1.0] * 64]


def test_a_jpeg_gives_about_the_same_numbers_as_a_png(tmp_path):
    values = np.kron(np.random.default_rng(0).integers(0, 255, (8, 8)), np.ones((32, 32))).astype(np.uint8)
    png, jpeg = saved(tmp_path / "a.png", values), saved(tmp_path / "a.jpg", values, quality=95)
    found = file_numbers([png, jpeg], form_of([png]))
    assert np.abs(found[0] - found[1]).max() < 0.02


def test_an_array_gives_evenly_spread_values(tmp_path):
    values = np.arange(1000.0)
    values[-1] = np.inf
    np.save(tmp_path / "a.npy", values.reshape(10, 100))
    form = form_of([tmp_path / "a.npy"])
    numbers = file_numbers([tmp_path / "a.npy"], form)[0]
    assert (form, numbers[0], numbers[1]) == (Form("array", 64), 0.0, 16.0)
    assert np.isnan(numbers[-1])


def test_texts_of_equal_words_are_near_each_other(tmp_path):
    for name, text in {"a": "Rain in May", "b": "in May: rain!", "c": "sun"}.items():
        (tmp_path / name).write_text(text)
    form = form_of([tmp_path / "a"])
    first, second, third = file_numbers([tmp_path / name for name in "abc"], form)
    assert form == Form("text", 128)
    assert first @ second == pytest.approx(1.0)
    assert first @ third < 0.5


def test_a_file_is_decoded_once_and_a_damaged_one_is_named(tmp_path):
    path = saved(tmp_path / "a.png", np.zeros((8, 8), dtype=np.uint8))
    form = form_of([path])
    before = file_numbers([path], form)
    path.unlink()
    assert (file_numbers([path], form) == before).all()
    with pytest.raises(EvaluationError, match="can't be read as numbers") as caught:
        file_numbers([tmp_path / "b.png"], form)
    assert caught.value.value == "b.png"


def test_encoding_puts_a_files_numbers_beside_other_columns(rows):
    rows = rows.assign(amount=np.arange(len(rows), dtype=float), shop=["a", "b"] * (len(rows) // 2))
    encoding = fit_encoding(rows, ["picture", "amount", "shop"])
    numbers, codes = encoding.encode(rows.head(3))
    assert (numbers.shape, codes.shape, len(encoding.numeric)) == ((3, 193), (3, 1), 193)
    assert not np.isnan(numbers).any()


@pytest.mark.parametrize("name", ["prior", "linear", "gradient_boosting"])
def test_baselines_learn_from_pictures(rows, name):
    training, held = rows.head(120), rows.tail(80)
    predict = fit_baselines(training, ["picture"], "label", [name], 0, BINARY)[name]
    found = predict(held[["picture"]])
    right = ((found > 0.5) == held["label"]).mean()
    assert right > 0.95 if name != "prior" else right == 0.5


def test_an_unreviewed_picture_alone_has_the_auc_of_its_numbers(rows):
    assert alone_aucs(rows.head(120), rows.tail(80), ["picture"], "label") == {"picture": 1.0}


def test_paths_become_texts_for_parquet(rows, tmp_path):
    rows.loc[1, "picture"] = None
    as_texts(rows).to_parquet(tmp_path / "a.parquet")
    found = pd.read_parquet(tmp_path / "a.parquet")["picture"]
    assert found[0] == str(tmp_path / "files" / "0000.png")
    assert pd.isna(found[1])


@pytest.mark.parametrize("text", ["P1 outage at noon", "P6 note: call back", "P6 99999 99999 255 calls", "BM is away"])
def test_a_text_that_begins_as_a_picture_does_is_a_text(tmp_path, text):
    (tmp_path / "a").write_text(text)
    assert form_of([tmp_path / "a"]).kind == "text"
    (tmp_path / "a.txt").write_text("P5 1 1 255 calls")
    assert form_of([tmp_path / "a.txt"]).kind == "text"
