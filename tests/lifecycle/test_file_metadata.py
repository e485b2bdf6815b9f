"""What pictures and texts are like, held against pictures that are made so and against Python's own functions."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageFilter

from tests.refusals import refused
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.files.metadata import OF_FILES, OF_TEXTS, file_metadata, text_metadata


@pytest.fixture
def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(60, 200, (20, 30, 3)).astype(np.uint8))


def described(folder, picture: Image.Image, name: str = "one.png", **options) -> dict:
    picture.save(folder / name, **options)
    return file_metadata(folder / name, "picture")


def test_one_colour_has_its_luma_and_nothing_else(tmp_path):
    found = described(tmp_path, Image.new("RGB", (3, 7), (255, 0, 0)))
    size = (tmp_path / "one.png").stat().st_size
    assert found == pytest.approx({
        "bytes": size, "width": 3, "height": 7, "format": "PNG", "mode": "RGB", "brightness": 0.299, "contrast": 0.0,
        "saturation": 1.0, "sharpness": 0.0,
    }, abs=1e-6)  # fmt: skip
    assert set(found) == set(OF_FILES["picture"])


def test_each_change_of_a_picture_moves_what_it_is_named_for(tmp_path, noise):
    plain = described(tmp_path, noise)
    assert described(tmp_path, noise.point(lambda value: value // 4))["brightness"] < 0.3 * plain["brightness"]
    assert described(tmp_path, noise.filter(ImageFilter.BoxBlur(2)))["sharpness"] < 0.1 * plain["sharpness"]
    grey = described(tmp_path, noise.convert("L").convert("RGB"))
    assert (grey["saturation"], grey["mode"]) == (0.0, "RGB")
    assert grey["brightness"] == pytest.approx(plain["brightness"], abs=0.005)
    flat = described(tmp_path, noise.point(lambda value: 128 + (value - 128) // 8))
    assert flat["contrast"] < 0.2 * plain["contrast"]


@pytest.mark.parametrize(("mode", "name"), [
    ("1", "a.png"), ("L", "a.png"), ("P", "a.png"), ("RGBA", "a.png"), ("CMYK", "a.jpg"), ("RGB", "a.webp"),
    ("P", "a.gif"), ("I;16", "a.png"),
])  # fmt: skip
def test_every_mode_is_told_and_lies_within_its_range(tmp_path, noise, mode, name):
    wide = Image.fromarray(np.asarray(noise.convert("L")).astype(np.uint16) * 257)
    found = described(tmp_path, wide if mode == "I;16" else noise.convert(mode), name)
    assert (found["mode"], found["width"], found["height"]) == (mode, 30, 20)
    assert found["brightness"] == pytest.approx(0.5, abs=0.05)
    assert all(0 <= found[key] <= 1 for key in ("contrast", "saturation"))
    assert found["sharpness"] > 0


def test_a_picture_of_floats_has_a_size_and_no_brightness_that_nobody_knows(tmp_path):
    found = described(tmp_path, Image.fromarray(np.full((20, 30), 0.7, dtype=np.float32)), "a.tiff")
    assert (found["mode"], found["width"], found["height"], found["format"]) == ("F", 30, 20, "TIFF")
    assert all(np.isnan(found[key]) for key in ("brightness", "contrast", "saturation", "sharpness"))


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 2)])
def test_a_picture_of_one_line_has_all_of_it(tmp_path, size):
    found = described(tmp_path, Image.new("L", size, 51))
    assert (found["width"], found["height"]) == size
    assert (found["brightness"], found["sharpness"]) == (pytest.approx(0.2), pytest.approx(0.0, abs=1e-9))


def test_a_large_picture_is_told_by_its_own_size_and_by_points_of_a_smaller_copy(tmp_path):
    halves = np.zeros((600, 800, 3), dtype=np.uint8)
    halves[:, 400:] = 200
    found = described(tmp_path, Image.fromarray(halves), "large.jpg")
    assert (found["width"], found["height"], found["format"]) == (800, 600, "JPEG")
    assert found["brightness"] == pytest.approx(100 / 255, abs=0.01)


def test_other_files_have_what_is_true_of_them(tmp_path, noise):
    noise.convert("L").save(tmp_path / "mask.png")
    assert set(file_metadata(tmp_path / "mask.png", "mask")) == {"bytes", "width", "height", "format", "mode"}
    np.save(tmp_path / "some.npy", np.zeros(3))
    size = (tmp_path / "some.npy").stat().st_size
    assert file_metadata(tmp_path / "some.npy", "array") == {"bytes": size}
    (tmp_path / "one.txt").write_text("Née 1 A\n", encoding="utf-8")
    found = file_metadata(tmp_path / "one.txt", "text")
    assert found == {
        "bytes": 9, "characters": 8, "words": 3, "word_length": 5 / 3, "uppercase": 2 / 4, "digits": 1 / 8,
        "non_ascii": 1 / 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "content"), [("picture", b"\x89PNG\r\n\x1a\nno"), ("mask", b""), ("text", b"\xff\xfe")]
)
def test_a_damaged_file_is_refused_by_name(tmp_path, kind, content):
    (tmp_path / "bad").write_bytes(content)
    with refused(EvaluationError, "metadata.file"):
        file_metadata(tmp_path / "bad", kind)


def test_texts_are_counted_as_python_counts_them():
    random = np.random.default_rng(0)
    words = np.array(["The", "BROWN", "über", "42", "ſs", "…", "日本", "\tx", "٣", "a\u00a0b"])
    texts = [" ".join(random.choice(words, random.integers(0, 30))) for _ in range(300)]
    found = text_metadata(pd.Series(texts))

    def share(part, whole):
        return [len(p) / len(w) if len(w) else np.nan for p, w in zip(part, whole, strict=True)]

    cased = [[one for one in text if one.isupper() or one.islower()] for text in texts]
    assert found["characters"].tolist() == [len(text) for text in texts]
    assert found["words"].tolist() == [len(text.split()) for text in texts]
    wanted = {
        "word_length": share(["".join(text.split()) for text in texts], [text.split() for text in texts]),
        "uppercase": share([[one for one in text if one.isupper()] for text in texts], cased),
        "digits": share([[one for one in text if one.isdecimal()] for text in texts], texts),
        "non_ascii": share([[one for one in text if not one.isascii()] for text in texts], texts),
    }
    for name, values in wanted.items():
        assert found[name].to_numpy() == pytest.approx(values, nan_ok=True), name


def test_missing_and_empty_texts_have_no_shares():
    found = text_metadata(pd.Series(["", None, "  ", "AB"], index=[7, 8, 9, 10]))
    assert [*found.columns] == [*OF_TEXTS]
    assert [*found.index] == [7, 8, 9, 10]
    assert found["characters"].tolist() == [0, pd.NA, 2, 2]
    assert found["words"].tolist() == [0, pd.NA, 0, 1]
    assert found["uppercase"].isna().tolist() == [True, True, True, False]
    assert text_metadata(pd.Series([None, None], dtype="str")).isna().all(axis=None)
    assert text_metadata(pd.Series([], dtype="str")).empty


def test_parts_that_are_counted_one_after_the_other_are_as_the_whole(monkeypatch):
    texts = pd.Series(["one two", "THREE", "", "4 five"] * 5)
    whole = text_metadata(texts)
    monkeypatch.setattr("trainworthy.lifecycle.files.metadata._AT_ONCE", 9)
    pd.testing.assert_frame_equal(text_metadata(texts), whole)
