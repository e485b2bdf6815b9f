"""An artifact whose model reads pictures: golden requests of noise, and requests as a service gets them."""

import base64
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from file_datasets import picture_dataset
from PIL import Image

from trainworthy.lifecycle.artifact import (
    artifact_kind,
    artifact_sha256,
    load_artifact,
    verify_artifact,
    write_artifact,
)
from trainworthy.lifecycle.errors import CheckpointError, EvaluationError
from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.files.values import of_strangers, opened_files, with_paths
from trainworthy.lifecycle.golden import answer_golden, draw_requests, file_columns, made_files, read_golden
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.task import load_task
from trainworthy.lifecycle.tasks.binary import BINARY

MODEL = """
import numpy as np
import torch
from PIL import Image


def fit_preprocessing(training, hyperparameters):
    return {}


def to_tensors(rows, preprocessing):
    pictures = [np.asarray(Image.open(path).convert("RGB"), dtype=np.float32) / 255 for path in rows["picture"]]
    return {"x": torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(192, 1)

    def forward(self, inputs):
        return self.layer(inputs["x"].flatten(1))[:, 0]


def build_model(preprocessing, hyperparameters):
    return Net()


def loss_fn(outputs, targets):
    return torch.nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def predict(outputs):
    return torch.sigmoid(outputs)
"""


@pytest.fixture
def rows(tmp_path):
    return with_paths(picture_dataset(tmp_path / "data", rows=40), ["picture"], tmp_path / "data")


def written(folder: Path, rows: pd.DataFrame, *, sensitive=()) -> Path:
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "model.py").write_text(MODEL)
    task = load_task(code)
    torch.manual_seed(0)
    path, _ = write_artifact(
        folder / "artifact", task_folder=code, model=task.build_model({}, {}), preprocessing={},
        calibration=BINARY.uncalibrated,
        example=task.to_tensors(rows.head(2), {}), target=Target(), requests=draw_requests(rows, sensitive, 0),
    )  # fmt: skip
    return Path(path)


def points(path: Path) -> bytes:
    with Image.open(path) as image:
        return image.tobytes()


def test_golden_requests_of_pictures_ship_no_picture_and_are_answered_again(tmp_path, rows):
    folder = written(tmp_path / "a", rows[["picture"]])
    score, kind = load_artifact(folder, artifact_sha256(folder)), artifact_kind(folder)
    golden = read_golden(folder, kind)
    assert golden is not None
    assert len(golden.requests) == 50
    shown = {points(path) for path in golden.requests["picture"]}
    assert len(shown) > 40
    assert not shown & {points(path) for path in rows["picture"]}
    assert answer_golden(golden, score, kind).difference == 0.0
    assert golden.answers.std() > 0


def test_equal_rows_and_seed_give_equal_bytes_and_a_changed_golden_file_is_noticed(tmp_path, rows):
    one, other = written(tmp_path / "a", rows[["picture"]]), written(tmp_path / "b", rows[["picture"]])
    assert artifact_sha256(one) == artifact_sha256(other)
    path = one / "golden" / "0_3.png"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(CheckpointError, match="changed") as caught:
        verify_artifact(one, artifact_sha256(one))
    assert caught.value.value == ["golden/0_3.png"]


def test_an_artifact_answers_wherever_it_lies(tmp_path, rows):
    folder = written(tmp_path / "a", rows[["picture"]])
    moved = folder.rename(tmp_path / "moved")
    golden = read_golden(moved, artifact_kind(moved))
    assert golden is not None
    assert answer_golden(golden, load_artifact(moved, artifact_sha256(moved)), artifact_kind(moved)).difference == 0.0


def test_a_sensitive_picture_is_blank(rows):
    made = draw_requests(rows[["picture"]], ["picture"], 0)["picture"]
    assert len(set(made)) == 1
    assert not np.asarray(opened(made[0].data)).any()


def opened(data: bytes) -> Image.Image:
    import io

    return Image.open(io.BytesIO(data))


def test_requests_mix_other_columns_with_files(rows):
    requests = draw_requests(rows[["picture", "row_id"]], [], 0)
    assert list(requests) == ["picture", "row_id"]
    assert len(requests) == 50


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "I;16", "CMYK"])
def test_made_pictures_have_the_size_of_the_first_and_a_mode_like_its(tmp_path, mode):
    form = "JPEG" if mode == "CMYK" else "PNG"
    for place, size in enumerate([(6, 4), (3, 5), (6, 4)]):
        noise = np.random.default_rng(place).integers(0, 255, (size[1], size[0], 3)).astype(np.uint8)
        image = Image.fromarray(noise)
        image = Image.fromarray(noise[..., 0].astype(np.uint16) * 256) if mode == "I;16" else image.convert(mode)
        image.save(tmp_path / f"{place}.img", form)
    made = made_files([tmp_path / f"{place}.img" for place in range(3)], 4, np.random.default_rng(0), blank=False)
    image = opened(made[0].data)
    assert (image.size, image.format, len(made)) == ((6, 4), form, 4)
    assert image.mode == ("RGB" if mode == "CMYK" else mode)


def photos(folder: Path, sizes: list[tuple[int, int]]) -> list[Path]:
    """Pictures of these widths and heights, the points of each all of its own grey."""
    paths = [folder / f"{place}.png" for place in range(len(sizes))]
    for place, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        Image.new("RGB", size, (place, place, place)).save(path)
    return paths


def test_large_pictures_are_mixed_of_many_and_few_are_made(tmp_path):
    made = made_files(photos(tmp_path, [(700, 600)] * 40), 50, np.random.default_rng(0), blank=False)
    points = np.asarray(opened(made[0].data))
    assert (len(made), points.shape) == (1, (600, 700, 3))
    shares = np.bincount(points[..., 0].ravel(), minlength=40) / (600 * 700)
    assert len(shares) == 40
    assert np.abs(shares - 1 / 40).max() < 0.005


def test_pictures_of_several_sizes_are_made_small(tmp_path):
    made = made_files(photos(tmp_path, [(700, 90), (64, 64)]), 50, np.random.default_rng(0), blank=False)
    assert {opened(one.data).size for one in made} == {(256, 90)}
    assert 10 < len(made) < 20


def test_made_arrays_and_texts_hold_values_and_words_of_all(tmp_path):
    for place in range(4):
        np.save(tmp_path / f"{place}.npy", np.full((3, 2), place, dtype=np.int16))
        (tmp_path / f"{place}.txt").write_text(f"word{place} and more words of {place}")
    generator = np.random.default_rng(0)
    arrays = made_files([tmp_path / f"{place}.npy" for place in range(4)], 5, generator, blank=False)
    texts = made_files([tmp_path / f"{place}.txt" for place in range(4)], 5, generator, blank=False)
    loaded = [np.load(_saved(tmp_path, one.data), allow_pickle=False) for one in arrays]
    assert {(one.shape, str(one.dtype)) for one in loaded} == {((3, 2), "int16")}
    assert all(len(set(one.ravel().tolist())) > 1 for one in loaded)
    sources = {(tmp_path / f"{place}.txt").read_text() for place in range(4)}
    assert all(len(one.data.split()) == 6 and one.data.decode() not in sources for one in texts)


def _saved(folder: Path, data: bytes) -> Path:
    (folder / "made.npy").write_bytes(data)
    return folder / "made.npy"


def test_a_request_is_a_path_or_content_and_anything_else_a_clear_error(tmp_path, rows):
    folder = written(tmp_path / "a", rows[["picture"]])
    score = load_artifact(folder, artifact_sha256(folder))
    path = rows["picture"][3]
    content = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    answers = [score(pd.DataFrame({"picture": [value]}))[0] for value in (path, str(path), content)]
    assert answers[0] == answers[1] == answers[2]
    for value, told in {
        "no/such.png": "names no file that can be opened here", 3: "a column of files",
        "data:image/png,x": "content that can't be read", "data:image/png;base64,***": "content that can't be read",
        "data:image/png;base64,JSFQUy1BZG9iZS0zLjA=": "no picture can be read from it",
    }.items():  # fmt: skip
        with pytest.raises(EvaluationError, match=told):
            score(pd.DataFrame({"picture": [value]}))


def test_content_without_data_is_told_in_a_short_error_and_nulls_of_pandas_are_none():
    content = base64.b64encode(bytes(range(256)) * 40).decode()
    with (
        pytest.raises(EvaluationError, match="names no file") as caught,
        opened_files(of_picture(content), PICTURE),
    ):
        pass
    assert len(str(caught.value.value)) < 90
    for value in ("a\0b", [1, 2]):
        with pytest.raises(EvaluationError, match="picture"), opened_files(of_picture(value), PICTURE):
            pass
    with opened_files(of_picture(pd.NA), PICTURE) as rows:
        assert rows["picture"][0] is None


PICTURE: dict[str, FileKind | None] = {"picture": "picture"}


def of_picture(value: object) -> pd.DataFrame:
    return pd.DataFrame({"picture": pd.Series([value], dtype=object)})


def test_files_json_names_the_columns_and_is_left_out_without_any(tmp_path, rows):
    folder = written(tmp_path / "a", rows[["picture"]])
    assert json.loads((folder / "files.json").read_text()) == {"picture": "picture"}
    (folder / "files.json").write_text('["picture"]')
    assert file_columns(folder) == {"picture": None}


def test_requests_of_strangers_hold_content_or_files_below_the_folder_that_is_served(tmp_path):
    served, content = tmp_path / "served", of_picture("data:image/png;base64,AAAA")
    (served / "may").mkdir(parents=True)
    (served / "may" / "a.png").write_bytes(b"x")
    (tmp_path / "secret.png").write_bytes(b"x")
    (served / "link.png").symlink_to(tmp_path / "secret.png")
    assert of_strangers(content, ["picture"], None).equals(content)
    assert of_strangers(of_picture(None), ["picture"], None)["picture"][0] is None
    for value in ("may/a.png", str(served / "may" / "a.png")):
        found = of_strangers(of_picture(value), ["picture"], served)["picture"][0]
        assert found == str(served.resolve() / "may" / "a.png")
        with pytest.raises(EvaluationError, match="this service opens none"):
            of_strangers(of_picture(value), ["picture"], None)
    for value in ("../secret.png", str(tmp_path / "secret.png"), "link.png", "/etc/hosts", "A" * 9000, "a\0b"):
        with pytest.raises(EvaluationError, match=r"outside the folder|names no file"):  # noqa: SIM117
            with opened_files(of_strangers(of_picture(value), ["picture"], served), PICTURE):
                pass
