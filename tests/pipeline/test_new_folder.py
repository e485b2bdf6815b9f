"""`trainworthy new` of a folder of files: a use case that passes its check, or one error that says what was seen."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from test_new import set_up
from toy_project import ROOT

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.file_rows import look_at_files
from trainworthy.lifecycle.engine.preflight.functions import try_functions
from trainworthy.lifecycle.protocol.jobs import FunctionsJob, Rows
from trainworthy.lifecycle.protocol.results import TriedFunction
from trainworthy.lifecycle.spec.task import TaskSpec, target_of
from trainworthy.lifecycle.spec.training import TrainingSpec
from trainworthy.lifecycle.task import load_module
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.review import Strength, strongest_first
from trainworthy.pipeline.scaffold import folder as folders
from trainworthy.pipeline.scaffold import folder_profile, shares
from trainworthy.pipeline.scaffold.folder import read_folder
from trainworthy.pipeline.scaffold.folder_profile import find_files
from trainworthy.pipeline.scaffold.profile import load_dataset
from trainworthy.pipeline.scaffold.project import lay_out
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.resources.settings import read_settings

RED, SPACED = "größe 1", "a b"


@pytest.fixture(autouse=True)
def few_rows_do(monkeypatch):
    """Of few files as of many: what a thousand rows take is measured elsewhere."""
    monkeypatch.setattr(shares, "LEAST_ROWS", 60)
    monkeypatch.setattr(shares, "LEAST_MASKS", 60)


@pytest.fixture
def data(tmp_path) -> Path:
    return tmp_path / "data"


def noise(seed: int, side: tuple[int, int] = (8, 8), colours: tuple[int, ...] = (3,)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*side, *colours)).astype(np.uint8)


def save(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def classes(data: Path, *names: str, each: int = 40, suffix: str = ".png", stem: str = "{:03}") -> Path:
    """A folder for each name with pictures of noise."""
    for at, name in enumerate(names):
        for one in range(each):
            save(data / name / f"{stem.format(one)}{suffix}", noise(1000 * at + one))
    return data


def scenes(data: Path, rows: int = 80, *, yes: int = 1, side=(9, 10), images="images/{}.png", masks="masks/{}.png"):
    """Pictures with masks, each with a square of another class at another place."""
    for one in range(rows):
        mask = np.zeros(side, dtype=np.uint8)
        mask[one % 5 : one % 5 + 3, one % 4 : one % 4 + 4] = yes
        save(data / images.format(f"s {one:03}"), noise(one, side))
        save(data / masks.format(f"s {one:03}"), mask)
    return data


def texts(data: Path, *names: str, each: int = 40) -> Path:
    for name in names:
        for one in range(each):
            (data / name).mkdir(parents=True, exist_ok=True)
            (data / name / f"{one:03}.txt").write_text(f"{name} wörd{one} and {one % 7}", encoding="utf-8")
    return data


def found(data: Path, work: Path, **asked):
    """What would be written for the folder, without DVC."""
    work.mkdir(exist_ok=True)
    given = {"target": None, "time": None, "positive": None, "keys": (), "owner": None} | asked
    return find_files(Request(name="shop", data=data, **given), data, work)


def told(data: Path, work: Path, **asked) -> str:
    result, problems = found(data, work, **asked)
    assert result is None
    assert all(problem.fix for problem in problems)
    return "\n".join(map(str, problems))


def made(project: Path, data: Path, *options: str) -> Path:
    assert main(["new", "shop", "--data", str(data), *options]) == 0
    return project / "use_cases" / "shop"


def published(project: Path) -> Path:
    (path,) = (project.parent / "state" / "datasets" / "shop").glob("*/files")
    return path


def laid_out(data: Path, tmp_path: Path, monkeypatch, **asked):
    """The use case's folder, the dataset's and what was found, without DVC."""
    project = set_up(tmp_path, monkeypatch)
    result, problems = found(data, tmp_path / "found", **asked)
    assert problems == []
    assert result is not None
    assert result.files is not None
    given = {"target": None, "time": None, "positive": None, "keys": (), "owner": None} | asked
    folder = lay_out(Request(name="shop", data=data, **given), read_settings(), result, project)
    # Real files, as DVC has them in its workspace.
    result.files.place(tmp_path / "links")
    shutil.copytree(tmp_path / "links", tmp_path / "source")
    load_dataset(result.dataset_text, tmp_path).build(tmp_path / "source", tmp_path / "built", 1)
    return folder, tmp_path / "built", result


def tried(folder: Path) -> dict[str, TriedFunction]:
    """The functions of the drafted model.py, on files made from the contract."""
    contract = load_contract(folder / "contract.yaml")
    values = yaml.safe_load((folder / "use_case.yaml").read_text())
    target = target_of(TaskSpec.model_validate(values["task"]), contract.label.classes)
    rows = Rows(features=contract.feature_columns, label=contract.label.name, group="", target=target)
    job = FunctionsJob(
        use_case_folder=str(folder), out=str(folder), device="cpu", rows=rows,
        hyperparameters=values["hyperparameters"], training=TrainingSpec.model_validate(values["training"]),
    )  # fmt: skip
    found = {one.name: one for one in try_functions(job).functions}
    assert all(one.evidence and not one.faults for one in found.values()), found
    return found


def is_tidy(folder: Path) -> None:
    """The files are as the formatter and the linter want them."""
    for command in (("check", "--ignore", "TID253"), ("format", "--check")):
        ruff = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml")]
        done = subprocess.run([*ruff, str(folder)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_folder_for_each_class_becomes_a_use_case_that_passes_its_check(tmp_path, monkeypatch, capsys, data):
    project = set_up(tmp_path, monkeypatch)
    folder = made(project, classes(data, RED, SPACED, "c"))
    assert main(["check", "shop"]) == 0, capsys.readouterr().out
    # Before the first run: on rows and files that are made.
    assert main(["check", "--quick", "shop"]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    for line in (
        "shop@v1: 120 rows, 3 classes",
        "a copy of the folder lies in data/shop_source/",
        "3 folders, a class each: kind multiclass",
        "--group prefix or --group folder if several rows are about the same thing",
        "all are 8 × 8 pixels, in colours; the network reads them as 16 × 16",
        "not seen: whether several pictures are of one patient",
    ):
        assert line in out
    contract = load_contract(folder / "contract.yaml")
    assert contract.label.classes == (SPACED, "c", RED)
    assert [(column.name, column.file) for column in contract.file_columns] == [("picture", "picture")]
    assert strongest_first(load_use_case(folder), contract) == (Strength("picture", ""),)
    rows = pd.read_parquet(published(project) / "part-0001.parquet")
    assert rows["picture"][0] == f"files/part-0001/{SPACED}/000.png"
    assert (published(project) / rows["picture"][0]).read_bytes() == (data / SPACED / "000.png").read_bytes()
    assert look_at_files(published(project), contract).check.status == "pass"
    copy = project / "data" / "shop_source" / "part-0001" / RED / "000.png"
    assert not copy.is_symlink()
    assert not copy.samefile(data / RED / "000.png")
    is_tidy(folder)


def test_pictures_beside_masks_become_a_segmentation_with_places_of_classes(tmp_path, monkeypatch, data):
    data.mkdir()
    (data / "classes.txt").write_text("ground\nhouse\n")
    folder, built, result = laid_out(scenes(data, yes=255), tmp_path, monkeypatch)
    assert "the masks hold 0 and 255: the copies hold 0 and 1, and so must those of a next part" in result.observations
    assert "80 pictures, each with its mask; of all pixels ground 86.7%, house 13.3%" in result.observations
    first = (folder / "model.py").read_text().splitlines()[0]
    assert first.endswith(": a small U-Net over pictures of one size, a logit of each class at each pixel.")
    values = yaml.safe_load((folder / "use_case.yaml").read_text())
    assert (values["task"], values["target"], values["split"]["by"]) == (
        {"kind": "segmentation"}, "mask_classes", "stratified",
    )  # fmt: skip
    contract = load_contract(folder / "contract.yaml")
    assert (contract.label.column, contract.label.classes) == ("mask", ("ground", "house"))
    assert [(column.file, column.size) for column in contract.file_columns] == [("picture", (9, 10)), ("mask", (9, 10))]
    rows = pd.read_parquet(built / "part-0001.parquet")
    assert rows["mask"][3] == "files/part-0001/masks/s 003.png"
    with Image.open(built / rows["mask"][3]) as mask, Image.open(data / "masks" / "s 003.png") as before:
        assert (np.asarray(mask) == np.asarray(before) // 255).all()
    assert look_at_files(built, contract).check.status == "pass"
    assert tried(folder)["augment"].evidence
    is_tidy(folder)


def test_texts_of_two_classes_become_a_binary_task_and_a_next_part_keeps_its_classes(tmp_path, monkeypatch, data):
    texts(data, "ham", "spam")
    assert "write --positive ham or --positive spam" in told(data, tmp_path / "work")
    folder, built, _ = laid_out(data, tmp_path, monkeypatch, positive="spam")
    rows = pd.read_parquet(built / "part-0001.parquet")
    assert rows["label"].tolist() == [0] * 40 + [1] * 40
    contract = load_contract(folder / "contract.yaml")
    assert contract.file_columns[0].file == "text"
    assert look_at_files(built, contract).check.status == "pass"
    tried(folder)
    is_tidy(folder)
    source = texts(tmp_path / "source" / "part-0002", "spam", "ham", each=2).parent
    dataset = load_dataset((folder / "dataset.py").read_text(), tmp_path)
    dataset.build(source, tmp_path / "second", 2)
    assert pd.read_parquet(tmp_path / "second" / "part-0002.parquet")["label"].tolist() == [0, 0, 1, 1]
    texts(source / "part-0002", "eggs", each=1)
    with pytest.raises(SystemExit, match=r"the folder 'eggs' is none of \['ham', 'spam'\]"):
        dataset.build(source, tmp_path / "third", 2)


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("image/{}.png", "mask/{}.png"),
        ("img/a/{}.jpg", "annotations/a/{}.png"),
        ("JPEGImages/{}.jpg", "SegmentationClass/{}.png"),
        ("images/{}.png", "masks/{}_mask.png"),
        ("{}.png", "{}_mask.png"),
    ],
)
def test_masks_are_found_by_the_usual_names(tmp_path, data, images, masks):
    result, problems = found(scenes(data, images=images, masks=masks), tmp_path / "work")
    assert problems == []
    assert result is not None
    assert result.target.task.kind == "segmentation"
    assert result.target.classes == ("class_0", "class_1")
    assert len(result.rows) == 80
    source = tmp_path / "work" / "files"
    assert all((source / name.removeprefix("files/")).is_file() for name in result.rows["mask"])


def test_group_is_proposed_where_many_names_begin_alike_or_files_lie_deeper(tmp_path, data):
    classes(data, "a", "b", each=160, stem="p{:03}-1")
    for path in sorted(data.rglob("*.png")):
        path.rename(path.with_name(f"p{int(path.name[1:4]) % 70:02}-{path.name}"))
    result, _ = found(data, tmp_path / "work", positive="a")
    assert result is not None
    assert (result.windows.split.by, result.windows.split.group_column) == ("group", "prefix")
    assert {column.name: column.role for column in result.columns}["prefix"] == "entity"
    assert not any("not seen" in line for line in result.observations)
    result, _ = found(data, tmp_path / "two", positive="a", split="stratified")
    assert result is not None
    assert "prefix" not in result.rows
    for path in sorted(data.rglob("*.png")):
        inner = path.parent / path.name[:3] / path.name[4:]
        inner.parent.mkdir(exist_ok=True)
        path.rename(inner)
    assert "lie deeper than in the folder of their class" in told(data, tmp_path / "three", positive="a")
    result, _ = found(data, tmp_path / "four", positive="a", group="folder")
    assert result is not None
    assert result.rows["folder"].nunique() == 70
    assert result.windows.split.group_column == "folder"


def test_tensors_are_made_by_batch_where_they_are_too_large(tmp_path, data, monkeypatch):
    classes(data, "a", "b")
    result, _ = found(data, tmp_path / "work", positive="a")
    assert result is not None
    assert not result.plan.per_batch
    monkeypatch.setattr(folder_profile, "MOST_TENSOR_BYTES", 1000)
    folder, _, _ = laid_out(data, tmp_path, monkeypatch, positive="a")
    values = yaml.safe_load((folder / "use_case.yaml").read_text())
    assert TrainingSpec.model_validate(values["training"]).tensors == "per_batch"


def test_masks_count_among_the_tensors_in_their_own_size(tmp_path, data, monkeypatch):
    # 80 rows of 3 x 16 x 16 float32 are 245,760 bytes, and 9 x 10 int64 of masks 57,600 more.
    monkeypatch.setattr(folder_profile, "MOST_TENSOR_BYTES", 300_000)
    result, _ = found(scenes(data), tmp_path / "work")
    assert result is not None
    assert result.plan.per_batch
    monkeypatch.setattr(folder_profile, "MOST_TENSOR_BYTES", 310_000)
    result, _ = found(data, tmp_path / "two")
    assert result is not None
    assert not result.plan.per_batch


def test_grey_pictures_of_sixteen_bits_keep_their_upper_eight(tmp_path, data, monkeypatch):
    for one in range(80):
        save(data / "ab"[one % 2] / f"{one}.png", noise(one, colours=()).astype(np.uint16) * 256)
    folder, built, _ = laid_out(data, tmp_path, monkeypatch, positive="a")
    tried(folder)
    is_tidy(folder)
    model = load_module(folder, "model")
    points = model.picture_of(built / "files" / "part-0001" / "a" / "0.png")
    assert points.shape == (1, 16, 16)
    assert points.max() == pytest.approx(noise(0, colours=()).max() / 255, abs=0.1)


def empty(data: Path) -> None:
    data.mkdir()


def unreadable(data: Path) -> None:
    classes(data, "a", "b")
    for one in range(5):
        (data / "a" / f"{one:03}.png").write_bytes(b"\x89PNG no more" if one else b"")


def mixed(data: Path) -> None:
    texts(classes(data, "a", "b"), "a")


def unknown(data: Path) -> None:
    classes(data, "a", "b")
    for one in range(50):
        (data / "a" / f"{one}.dat").touch()


def link_outside(data: Path) -> None:
    classes(data, "a", "b")
    (data / "a" / "000.png").unlink()
    (data / "a" / "000.png").symlink_to(ROOT / "README.md")
    (data / "c").symlink_to(data / "a")


def wrapped(data: Path) -> None:
    classes(data / "inner", "a", "b")


def colours(data: Path) -> None:
    save(scenes(data) / "masks" / "s 000.png", noise(0, (9, 10)))


def other_values(data: Path) -> None:
    scenes(data)
    for one in range(7):
        save(data / "masks" / f"s {one:03}.png", np.full((9, 10), 255, dtype=np.uint8))


def one_slip(data: Path) -> None:
    """Black and white masks, and in one of them a pixel that is neither."""
    scenes(data, yes=255)
    mask = np.zeros((9, 10), dtype=np.uint8)
    mask[0, 0] = 128
    save(data / "masks" / "s 005.png", mask)


def bare(data: Path) -> None:
    classes(data, "a", "b")
    (data / "c").mkdir()
    (data / "d").mkdir()
    (data / "d" / "1.heic").touch()


def another_size(data: Path) -> None:
    save(scenes(data) / "masks" / "s 000.png", np.zeros((4, 4), dtype=np.uint8))


def two_sizes(data: Path) -> None:
    scenes(data)
    for top, values in (("images", noise(0, (4, 4))), ("masks", np.zeros((4, 4), dtype=np.uint8))):
        save(data / top / "s 000.png", values)


def test_classes_of_masks_without_names_are_named_in_the_contract(tmp_path, data):
    result, problems = found(scenes(data), tmp_path / "found")
    assert problems == []
    assert result is not None
    (line,) = (line for line in result.observations if "have no names" in line)
    assert "write them in contract.yaml (label: classes" in line


def alone(data: Path) -> None:
    (scenes(data) / "masks" / "s 000.png").unlink()
    (data / "images" / "s 001.png").unlink()


def too_few_names(data: Path) -> None:
    (scenes(data, yes=2) / "classes.txt").write_text("ground\nhouse\n")


WRONG = [
    (empty, {}, "the folder is empty"),
    (lambda data: classes(data, "a"), {}, "there is one class only, the folder 'a'"),
    (wrapped, {}, "there is one class only, the folder 'inner'"),
    (lambda data: classes(data / "the inner", "a", "b"), {}, "/the inner'"),
    (lambda data: [classes(data, "a", "b"), classes(data, "c", each=9)], {}, "so that each split has some: 'c' 9"),
    (unreadable, {}, "5 of 80 pictures can't be read: 'a/000.png': it is empty (0 bytes); 'a/001.png': Unidentified"),
    (mixed, {}, "holds both 80 pictures ('a/000.png' and 79 more) and 40 texts"),
    (unknown, {}, "50 files are neither pictures"),
    (link_outside, {}, "2 links lead out of the folder or to folders: 'c', 'a/000.png'"),
    (lambda data: classes(data, "a/x", "b/y"), {}, "80 of 80 pictures lie deeper"),
    (lambda data: classes(data, "train/a", "train/b", "test/a"), {}, "its folders 'test', 'train' are splits"),
    (lambda data: classes(data, "a", "b", ""), {}, "40 pictures lie beside the folders of the classes: '000.png'"),
    (lambda data: classes(data, ""), {}, "40 pictures and nothing that says what they show"),
    (lambda data: texts(data, "."), {"kind": "binary"}, "or leave --kind out: the next byte of texts without classes"),
    (lambda data: texts(data, "a"), {"kind": None}, "or --kind language_model, if the folders are no classes"),
    (lambda data: texts(data, ".", "a", "b"), {}, "40 texts lie beside the folders of the classes"),
    (lambda data: texts(data, "a/x", "b/y"), {}, "or --kind language_model, if the folders are no classes"),
    (lambda data: classes(data, "a", "b"), {"kind": "language_model"}, "is of texts, and the folder holds 80 pictures"),
    (lambda data: classes(data, "a", "back\\slash"), {}, "40 names can't be written into a table"),
    (lambda data: classes(data, "a", "b", each=20), {}, "too few rows have a label (value: '40 rows')"),
    (lambda data: classes(data, "a", "b"), {"group": "patient"}, "is nothing that names of files tell"),
    (lambda data: classes(data, "a", "b"), {"group": "prefix"}, "some names of files have nothing before a _ or -"),
    (lambda data: classes(data, "a", "b"), {"group": "folder"}, "80 of 80 pictures do not lie in a folder below"),
    (bare, {}, "2 of the folders hold no pictures: 'c', 'd'"),
    (colours, {}, "1 of 80 masks hold colours (RGB), not a class a pixel: 'masks/s 000.png'"),
    (other_values, {}, "here 0 to 2, and 7 of 80 masks hold 255: 'masks/s 000.png', 'masks/s 001.png'"),
    (other_values, {}, "255 often means that nobody has looked there"),
    (another_size, {}, "1 of 80 masks have another size than their picture: 'images/s 000.png' is 9 × 10 and"),
    (two_sizes, {}, "the masks have 2 sizes, height × width: 9 × 10 (79), 4 × 4 (1)"),
    (alone, {}, "1 of 79 pictures have no mask: 'images/s 000.png'; 1 of 79 masks have no picture: 'masks/s 001.png'"),
    (lambda data: scenes(data, yes=0), {}, "all pixels of all 80 masks are 0"),
    (one_slip, {}, "here 0 to 2, and 1 of 80 masks hold 128: 'masks/s 005.png'; 79 of 80 masks hold 255"),
    (lambda data: scenes(data, yes=2), {}, "here 0 to 1, and 80 of 80 masks hold 2"),
    (too_few_names, {}, "here 0 to 1, and 80 of 80 masks hold 2"),
    (lambda data: scenes(data, 30), {}, "too few rows have a label (value: '30 rows')"),
    (lambda data: classes(data, "a", "b", "A"), {}, "differ by case or by a blank alone: 'A', 'a'"),
    (lambda data: classes(data, "a", "b"), {"kind": "segmentation"}, "needs masks, and the folder holds 2 classes"),
    (scenes, {"kind": "binary"}, "a picture with a mask is kind segmentation"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "asked", "problem"), WRONG)
def test_wrong_folder_is_one_error_with_what_was_seen(tmp_path, data, make, asked, problem):
    make(data)
    with_masks = any((data / name).is_dir() for name in ("masks", "train"))
    text = told(data, tmp_path / "work", **asked, positive=None if with_masks else "a")
    assert problem in text
    assert text.count("fix: ") == 1


def test_folder_with_more_files_than_any_is_left_soon(tmp_path, data, monkeypatch):
    monkeypatch.setattr(folders, "MOST_FILES", 30)
    assert "holds more than 30 files" in told(classes(data, "a", "b"), tmp_path / "work")


def test_files_of_another_kind_are_left_out_and_told(tmp_path, data):
    classes(data, "a", "b")
    for name in ("README.md", "a/.DS_Store", "b/Thumbs.db"):
        (data / name).write_text("x")
    result, problems = found(data, tmp_path / "work", positive="a")
    assert problems == []
    assert result is not None
    assert len(result.rows) == 80
    assert "left out: other files (1 .md)" in result.observations


@pytest.mark.skipif(os.name != "posix", reason="names of bytes")
def test_name_that_is_no_text_is_refused(data):
    classes(data, "a", "b")
    os.rename(data / "a" / "000.png", os.fsencode(data / "a") + b"/\xff.png")
    _, problems = read_folder(data)
    assert "1 names can't be written into a table" in str(problems[0])


def test_options_of_tables_are_refused_for_a_folder(tmp_path, monkeypatch, data, capsys):
    set_up(tmp_path, monkeypatch)
    classes(data, "a", "b")
    asked = ("--target", "x", "--time", "t", "--key", "k", "--quantiles", "0.5", "--kind", "regression")
    assert main(["new", "shop", "--data", str(data), *asked, "--positive", "a"]) == 1
    text = capsys.readouterr().err
    for option in ("--target", "--time", "--key", "--quantiles"):
        assert f"{option}: is for tables, and --data is a folder" in text
    assert "--kind: a folder gives each file one class" in text
    assert main(["new", "shop", "--data", str(data), "--split", "group", "--positive", "a"]) == 1
    assert "write --group prefix or --group folder" in capsys.readouterr().err
