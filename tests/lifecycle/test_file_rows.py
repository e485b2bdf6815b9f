"""The snapshot opens each file that rows name: every wrong one is told by its row, and nothing is written then."""

import copy
import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy_jobs
import yaml
from file_datasets import picture, picture_dataset
from PIL import Image
from test_record_store import dataset

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data import file_rows
from trainworthy.lifecycle.data.file_rows import look_at, look_at_files, sha_column
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.files import decode
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.leakage.equal_files import equal_files
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.snapshot import make_snapshot
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case

AT_ONCE = {"property": "availableAt", "value": "PT0S"}


def column(name, logical_type, role, **properties):
    custom = [AT_ONCE, *({"property": key, "value": value} for key, value in {"role": role, **properties}.items())]
    return {"name": name, "logicalType": logical_type, "required": True, "customProperties": custom}


CONTRACT = {
    "apiVersion": "v3.1.0",
    "kind": "DataContract",
    "id": "toy",
    "version": "1.0.0",
    "status": "active",
    "customProperties": [{"property": "label", "value": {"name": "bright", "version": 1, "column": "label"}}],
    "schema": [
        {
            "name": "toy",
            "properties": [
                column("row_id", "integer", "key") | {"primaryKey": True},
                column("picture", "string", "feature", file="picture", size=[8, 8]),
                column("label", "integer", "target"),
                column("day", "date", "other"),
            ],
        }
    ],
}
USE_CASE = {
    "name": "toy",
    "owner": "team:toy",
    "dataset": {"name": "toy", "version": "v1"},
    "target": "bright",
    "prediction_time": None,
    "split": {
        "by": "hash", "salt": "v1", "shares": {"validation": 0.2, "calibration": 0.2, "benchmark": 0.2},
        "resample_by": "day",
    },
}  # fmt: skip


def of(kind: str, size: tuple[int, ...] | None = None, role: str = "feature") -> Column:
    return Column.model_validate({"name": "c", "logical_type": "string", "role": role, "file": kind, "size": size})


def png(**settings) -> bytes:
    return encoded(picture(0, 0), "PNG", **settings)


def encoded(image: Image.Image, form: str, **settings) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **settings)
    return file.getvalue()


def npy(values: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=allow_pickle)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "size", "data", "told"),
    [
        ("picture", None, None, "the file is missing"),
        ("picture", None, b"", "empty (0 bytes)"),
        ("picture", None, b"no picture", "no picture can be read from it (UnidentifiedImageError"),
        ("picture", None, png()[:-60], "no picture can be read from it"),
        ("picture", (8, 9), png(), "8 × 8 pixels, and the contract pins 8 × 9"),
        ("picture", None, encoded(picture(0, 0), "EPS"), "no picture can be read from it"),
        ("mask", None, png(), "its mode is RGB"),
        ("array", (3,), npy(np.zeros(2)), "its shape is (2), and the contract pins (3)"),
        ("array", None, npy(np.array([{}]), allow_pickle=True), "an array holds numbers"),
        ("array", None, npy(np.zeros(4))[:-8], "its header tells of 32 bytes, and it has 24"),
        ("array", None, npy(np.zeros(0)), "the array is empty"),
        ("array", None, b"PK\x03\x04", "no array can be read from it"),
        ("text", None, b" \n\t", "only white space"),
        ("text", None, b"\xff\xfe", "no text can be read from it (UnicodeDecodeError"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_words(tmp_path, kind, size, data, told):
    (tmp_path / "files").mkdir()
    if data is not None:
        (tmp_path / "files" / "a").write_bytes(data)
    assert told in look_at(tmp_path, of(kind, size), "files/a").wrong


@pytest.mark.parametrize(
    ("kind", "size", "data"),
    [
        ("picture", (8, 8), png()),
        ("picture", None, encoded(picture(0, 0).convert("CMYK"), "JPEG")),
        ("mask", (8, 8), encoded(picture(0, 0).convert("P"), "PNG")),
        ("array", (2, 3), npy(np.zeros((2, 3), dtype=np.int8))),
        ("text", None, "é".encode()),
    ],
)
def test_a_sound_file_has_the_hash_of_its_bytes(tmp_path, kind, size, data):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_bytes(data)
    seen = look_at(tmp_path, of(kind, size), "files/a")
    assert (seen.wrong, seen.sha256) == ("", sha256_file(tmp_path / "files" / "a"))


@pytest.mark.parametrize("name", ["/etc/hosts", "files/../../a", "files\\a", "a", "files/", "files/link"])
def test_a_path_outside_the_folder_is_told_and_never_opened(tmp_path, name):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "link").symlink_to("/etc/hosts")
    assert "a file outside the dataset's folder" in look_at(tmp_path, of("text"), name).wrong


def test_too_large_files_are_told_before_they_are_decoded(tmp_path, monkeypatch):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_bytes(png())
    monkeypatch.setattr(decode, "MOST_PIXELS", 63)
    assert "64 pixels, more than 63" in look_at(tmp_path, of("picture"), "files/a").wrong
    monkeypatch.setattr(file_rows, "MOST_BYTES", 10)
    assert "bytes, more than 10" in look_at(tmp_path, of("picture"), "files/a").wrong


@pytest.fixture
def project(tmp_path):
    """A use case of pictures in two classes, its dataset below the state folder."""
    folder = tmp_path / "use_cases" / "toy"
    folder.mkdir(parents=True)
    toy = yaml.safe_load((toy_jobs.TOY / "use_case.yaml").read_text())
    (folder / "use_case.yaml").write_text(yaml.safe_dump(toy | USE_CASE, sort_keys=False))
    (folder / "contract.yaml").write_text(yaml.safe_dump(CONTRACT, sort_keys=False))
    for name in ("model.py", "dataset.py"):
        shutil.copyfile(toy_jobs.TOY / name, folder / name)
    state = StateFolder(tmp_path / "var")
    source = state.folder("datasets", "toy")
    rows = picture_dataset(source, rows=400)
    return load_use_case(folder), state, source, rows


def judged(source: Path, contract: object) -> CheckResult:
    return CheckResult(name="contract", status="pass")


def snapshot(project):
    use_case, state, source, rows = project
    version = dataset().model_copy(update={"path": state.relative(source), "rows": len(rows), "name": "toy"})
    return make_snapshot(state, use_case, load_contract(use_case.contract_path), version, judged)


def test_snapshot_holds_the_hash_beside_the_path_and_rows_come_back_as_paths(project):
    _, state, source, _ = project
    checks, body = snapshot(project)
    assert body is not None, checks
    files = {check.name: check for check in checks}["files"]
    assert (files.status, files.evidence) == ("pass", "400 files of picture can be read")
    path = str(state.absolute(body.splits["training"].file.path))
    split = pd.read_parquet(path)
    assert split[sha_column("picture")][0] == sha256_file(source / split["picture"][0])
    asked = Rows(features=("picture",), label="bright", group="day", files=("picture",), files_root=str(source))
    assert read_rows(path, asked)["picture"][0] == source / split["picture"][0]


def test_a_missing_file_is_a_null_of_its_column_and_told_once(project):
    use_case, _, source, rows = project
    use_case.contract_path.write_text(use_case.contract_path.read_text().replace("required: true", "required: false"))
    rows.loc[rows["row_id"] % 7 == 0, "picture"] = None
    rows.to_parquet(source / "rows.parquet", index=False)
    checks, body = snapshot(project)
    assert body is not None, checks
    found = {check.name: check for check in checks}
    assert found["files"].evidence == "342 files of picture can be read"
    assert "in 4 columns the share of nulls" in found["history"].evidence


def test_snapshot_stops_at_wrong_files_names_their_rows_and_writes_nothing(project):
    _, state, source, _ = project
    (source / "files" / "0007.png").unlink()
    (source / "files" / "0011.png").write_bytes(b"")
    checks, body = snapshot(project)
    assert body is None
    assert (checks[-1].name, checks[-1].stops, checks[-1].observed) == ("files", True, 2)
    assert "row_id=7, picture=files/0007.png: the file is missing" in checks[-1].evidence
    assert checks[-1].details[0]["row"] == {"row_id": 7, "picture": "files/0007.png"}
    assert not state.folder("snapshots").exists()


def test_files_of_a_sensitive_column_are_told_without_their_paths(project):
    use_case, _, source, _ = project
    values = copy.deepcopy(CONTRACT)
    values["schema"][0]["properties"][1]["customProperties"].append({"property": "sensitive", "value": True})
    use_case.contract_path.write_text(yaml.safe_dump(values))
    (source / "files" / "0007.png").unlink()
    found = look_at_files(source, load_contract(use_case.contract_path)).check
    assert "row_id=7: the file is missing" in found.evidence
    assert "0007.png" not in str(found.model_dump())


def test_snapshot_finds_equal_bytes_in_training_and_the_benchmark(project):
    _, state, source, _ = project
    _, body = snapshot(project)
    assert body is not None
    ids = {name: pd.read_parquet(state.absolute(split.file.path))["row_id"] for name, split in body.splits.items()}
    for place in range(10):
        copied, onto = ids["training"][place], ids["benchmark"][place]
        (source / "files" / f"{onto:04}.png").write_bytes((source / "files" / f"{copied:04}.png").read_bytes())
    checks, body = snapshot(project)
    assert body is None
    leakage = next(check for check in checks if check.name == "leakage")
    assert leakage.stops
    assert "10 rows of benchmark" in leakage.evidence
    assert f"row_id={ids['benchmark'][0]} has the file of row_id={ids['training'][0]} in training" in leakage.evidence


def test_equal_files_are_a_warning_where_a_split_follows_time_or_few_do(tmp_path, project):
    contract = load_contract(project[0].contract_path)
    for split in ("training", "validation", "calibration", "benchmark"):
        hashes = [f"{split} {row}" for row in range(200)]
        hashes[0] = "same" if split in ("training", "validation") else hashes[0]
        rows = pd.DataFrame({"row_id": range(200), "picture:sha256": hashes})
        rows.to_parquet(tmp_path / f"{split}.parquet")
    one = equal_files(SplitFiles(tmp_path), contract, by_time=False)
    assert [(leak.status, leak.observed) for leak in one] == [("warning", 1 / 200)]
    rows = pd.read_parquet(tmp_path / "validation.parquet")
    rows.assign(**{"picture:sha256": "same"}).to_parquet(tmp_path / "validation.parquet")
    assert [leak.status for leak in equal_files(SplitFiles(tmp_path), contract, by_time=True)] == ["warning"]
    assert [leak.status for leak in equal_files(SplitFiles(tmp_path), contract, by_time=False)] == ["fail"]


def masked(folder: Path, masks: list[np.ndarray]) -> Contract:
    """Rows of a picture of 6 × 8 pixels and a mask each, and their contract: two classes."""
    (folder / "files").mkdir(parents=True)
    for row, mask in enumerate(masks):
        Image.new("RGB", (8, 6)).save(folder / "files" / f"{row}.png")
        Image.fromarray(mask.astype(np.uint8)).save(folder / "files" / f"{row}m.png")
    count = len(masks)
    pd.DataFrame(
        {"row_id": range(count), "picture": [f"files/{row}.png" for row in range(count)],
         "mask": [f"files/{row}m.png" for row in range(count)]}
    ).to_parquet(folder / "rows.parquet", index=False)  # fmt: skip
    contract = copy.deepcopy(CONTRACT)
    label = {"name": "classes", "version": 1, "column": "mask", "type": "mask", "classes": ["ground", "thing"]}
    contract["customProperties"][0]["value"] = label
    contract["schema"][0]["properties"] = [
        column("row_id", "integer", "key") | {"primaryKey": True},
        column("picture", "string", "feature", file="picture"), column("mask", "string", "target", file="mask"),
    ]  # fmt: skip
    (folder.parent / "contract.yaml").write_text(yaml.safe_dump(contract))
    return load_contract(folder.parent / "contract.yaml")


def test_masks_of_another_size_than_their_picture_or_with_an_unknown_class_are_told_by_row(tmp_path):
    sound = np.arange(48).reshape(6, 8) % 2
    contract = masked(tmp_path / "data", [sound, sound[:5], sound + 1, sound])
    found = look_at_files(tmp_path / "data", contract).check
    assert (found.status, found.observed) == ("fail", 2)
    told = {detail["row"]["row_id"]: detail["problem"] for detail in found.details if "row" in detail}
    assert told == {
        1: "the mask is 5 × 8 pixels, and its picture 6 × 8",
        2: "a pixel of the mask is 2, and the 2 classes are 0 to 1",
    }


def test_pixel_below_0_is_told_by_row(tmp_path):
    contract = masked(tmp_path / "data", [np.arange(48).reshape(6, 8) % 2] * 2)
    with io.BytesIO() as file:
        Image.fromarray((np.arange(48).reshape(6, 8) % 2 - 1).astype(np.int32)).save(file, format="TIFF")
        (tmp_path / "data" / "files" / "1m.png").write_bytes(file.getvalue())
    found = look_at_files(tmp_path / "data", contract).check
    told = {detail["row"]["row_id"]: detail["problem"] for detail in found.details if "row" in detail}
    assert told == {1: "a pixel of the mask is -1, and the 2 classes are 0 to 1"}


def test_sound_masks_pass_and_a_label_of_masks_needs_a_name_of_its_own(tmp_path):
    contract = masked(tmp_path / "data", [np.arange(48).reshape(6, 8) % 2] * 3)
    assert look_at_files(tmp_path / "data", contract).check.status == "pass"
    text = (tmp_path / "contract.yaml").read_text().replace("name: classes", "name: mask")
    (tmp_path / "contract.yaml").write_text(text)
    with pytest.raises(UseCaseError, match="is the name of the label's column"):
        load_contract(tmp_path / "contract.yaml")
