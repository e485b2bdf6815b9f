"""`trainworthy new` of a table whose columns name files: pictures and texts beside it, alone or with other columns."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from test_new import set_up
from test_new_folder import is_tidy, made, noise, published, save, tried

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.file_rows import look_at_files
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.scaffold import shares, table_files, table_profile, windows
from trainworthy.pipeline.scaffold.profile import UseCaseDraft, load_dataset
from trainworthy.pipeline.scaffold.project import lay_out
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.table_profile import find_out
from trainworthy.resources.settings import read_settings

ROWS = 400


@pytest.fixture(autouse=True)
def few_rows_do(monkeypatch):
    """Of few files as of many: what a thousand rows take is measured elsewhere."""
    monkeypatch.setattr(shares, "LEAST_ROWS", 60)
    monkeypatch.setattr(windows, "LEAST_ROWS", 60)


def shots(data: Path, folder: str = "img/", suffix: str = ".png", rows: int = ROWS) -> pd.DataFrame:
    """A picture for each row, named without its folder and suffix; a label of each kind, and other inputs."""
    for one in range(rows):
        save(data / f"{folder}{one:04}{suffix}", noise(one))
    draw = np.random.default_rng(0)
    labels = ["", "cat", "dog", "cat|dog"]
    return pd.DataFrame(
        {
            "shot": [f"{one:04}" for one in range(rows)],
            "seen": [labels[one % 4] for one in range(rows)],
            "weight": draw.normal(60, 8, rows).round(2),
            "sold": np.where(draw.random(rows) < 0.5, "yes", "no"),
            "age": draw.integers(1, 90, rows),
            "place": draw.choice(["north", "south"], rows),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(rows), unit="D"),
        }
    )


def notes(data: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a text file each."""
    for one in range(len(rows)):
        (data / "notes").mkdir(parents=True, exist_ok=True)
        (data / "notes" / f"{one}.txt").write_text(f"wörd{one} and {one % 7}", encoding="utf-8")
    return rows.assign(note=[f"notes/{one}.txt" for one in range(len(rows))])


def asked(data: Path, rows: pd.DataFrame, suffix: str = ".parquet", **options) -> Request:
    data.mkdir(exist_ok=True)
    path = data / f"labels{suffix}"
    rows.to_csv(path, index=False) if suffix == ".csv" else rows.to_parquet(path, index=False)
    given = {"target": "weight", "time": None, "positive": None, "keys": (), "owner": None} | options
    return Request(name="shop", data=path, **given)


def found(tmp_path: Path, rows: pd.DataFrame, **options):
    """The request, what would be written for the table, without DVC, and what is wrong with it."""
    request, work = asked(tmp_path / "data", rows, **options), tmp_path / "work"
    work.mkdir()
    assert request.data is not None
    return request, *find_out(request, request.data, work)


def drafted(tmp_path: Path, rows: pd.DataFrame, **options) -> UseCaseDraft:
    _, result, problems = found(tmp_path, rows, **options)
    assert problems == []
    assert result is not None
    return result


def laid_out(tmp_path: Path, monkeypatch, rows: pd.DataFrame, **options):
    """The use case's folder, the dataset's and what was found, without DVC."""
    project = set_up(tmp_path, monkeypatch)
    request, result, problems = found(tmp_path, rows, **options)
    assert problems == []
    assert result is not None
    assert result.table_files is not None
    folder = lay_out(request, read_settings(), result, project)
    result.table_files.place(tmp_path / "links")
    # Real files, as DVC has them in its workspace.
    shutil.copytree(tmp_path / "links", tmp_path / "source")
    load_dataset(result.dataset_text, tmp_path).build(tmp_path / "source", tmp_path / "built", 1)
    return folder, tmp_path / "built", result


def told(tmp_path: Path, rows: pd.DataFrame, **options) -> str:
    _, result, problems = found(tmp_path, rows, **options)
    assert result is None
    assert all(problem.fix for problem in problems)
    return "\n".join(map(str, problems))


def test_labels_of_pictures_become_a_use_case_that_passes_its_check(tmp_path, monkeypatch, capsys):
    project, data = set_up(tmp_path, monkeypatch), tmp_path / "data"
    request = asked(data, shots(data)[["shot", "seen"]])
    folder = made(project, Path(str(request.data)), "--target", "seen")
    assert main(["check", "shop"]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    for line in (
        "a copy of the table and its files lies in data/shop_source/",
        "'shot' names 400 pictures, img/….png",
        "all are 8 × 8 pixels, in colours; the network reads them as 16 × 16",
        "not seen: whether several pictures are of one patient, place or video",
    ):
        assert line in out
    contract = load_contract(folder / "contract.yaml")
    assert [(column.name, column.file) for column in contract.file_columns] == [("shot", "picture")]
    assert contract.label.classes == ("cat", "dog")
    rows = pd.read_parquet(published(project) / "part-0001.parquet")
    assert (rows["shot"][3], rows["seen"][3]) == ("files/part-0001/img/0003.png", "cat|dog")
    assert (published(project) / rows["shot"][3]).read_bytes() == (data / "img" / "0003.png").read_bytes()
    copy = project / "data" / "shop_source" / "part-0001" / "img" / "0003.png"
    assert not copy.is_symlink()
    is_tidy(folder)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (["shot", "weight"], {}),
        (["shot", "weight"], {"quantiles": "0.1,0.9"}),
        (["shot", "sold"], {"target": "sold"}),
        (["shot", "weight", "age", "place"], {}),
        (["shot", "weight", "age"], {"quantiles": "0.1,0.9"}),
        (["shot", "seen", "note", "day"], {"target": "seen", "time": "day"}),
        (["note", "sold"], {"target": "sold"}),
        (["note", "weight"], {}),
        (["note", "sold", "place"], {"target": "sold"}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else "-".join(map(str, value.values())),
)
def test_every_kind_of_label_is_drafted_with_files_alone_and_beside_other_inputs(
    tmp_path, monkeypatch, columns, options
):
    data = tmp_path / "data"
    rows = notes(data, shots(data))[columns]
    folder, built, _ = laid_out(tmp_path, monkeypatch, rows, **options)
    contract = load_contract(folder / "contract.yaml")
    files = {column.name: column.file for column in contract.file_columns}
    assert files == {name: kind for name, kind in (("shot", "picture"), ("note", "text")) if name in columns}
    assert look_at_files(built, contract).check.status == "pass"
    tensors = tried(folder)["to_tensors"].evidence
    assert ("float32" in tensors, "picture" in tensors) == (True, "shot" in columns)
    # Columns beside the files are read, and files alone need no numbers.
    assert ("numbers" in tensors) == (len(columns) > 2)
    is_tidy(folder)


def test_network_of_an_event_begins_at_its_share(tmp_path, monkeypatch):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "sold"]].assign(sold=["yes" if one % 5 == 0 else "no" for one in range(ROWS)])
    folder, *_ = laid_out(tmp_path, monkeypatch, rows, target="sold", positive="yes")
    assert yaml.safe_load((folder / "use_case.yaml").read_text())["hyperparameters"]["base_rate"] == 0.2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_values_name_files_with_folder_and_suffix_or_by_what_is_left_of_them(tmp_path, monkeypatch, suffix):
    data = tmp_path / "data"
    rows = shots(data, folder="a/b c/", suffix=".JPG")[["shot", "weight"]]
    whole = rows.assign(shot=[f"b c/{name}.JPG" for name in rows["shot"]])
    _, built, result = laid_out(tmp_path, monkeypatch, whole, suffix=suffix)
    assert result.table_files is not None
    assert result.table_files.places == {"shot": ("shot", "a/", "")}
    assert pd.read_parquet(built / "part-0001.parquet")["shot"][0] == "files/part-0001/a/b c/0000.JPG"
    assert (built / "files" / "part-0001" / "a" / "b c" / "0000.JPG").is_file()


def test_numbers_name_files_and_a_next_part_is_built_with_its_own(tmp_path, monkeypatch):
    data = tmp_path / "data"
    rows = shots(data, folder="")[["shot", "weight"]].assign(shot=range(1000, 1000 + ROWS))
    for one in range(ROWS):
        (data / f"{one:04}.png").rename(data / f"{1000 + one}.png")
    _, built, result = laid_out(tmp_path, monkeypatch, rows)
    assert result.key == ("shot",)
    (tmp_path / "source" / "part-0002").mkdir()
    save(tmp_path / "source" / "part-0002" / "7.png", noise(7))
    pd.DataFrame({"shot": [7], "weight": [1.5]}).to_csv(tmp_path / "source" / "part-0002" / "rows.csv", index=False)
    load_dataset(result.dataset_text, tmp_path).build(tmp_path / "source", tmp_path / "both", 2)
    second = pd.read_parquet(tmp_path / "both" / "part-0002.parquet")
    assert second[["shot", "picture"]].to_numpy().tolist() == [["7", "files/part-0002/7.png"]]
    assert (tmp_path / "both" / "files" / "part-0002" / "7.png").is_file()
    assert pd.read_parquet(built / "part-0001.parquet")["picture"][0] == "files/part-0001/1000.png"


def test_tensors_of_many_files_are_made_batch_by_batch(tmp_path, monkeypatch):
    data = tmp_path / "data"
    monkeypatch.setattr(table_profile, "MOST_TENSOR_BYTES", 1000)
    result = drafted(tmp_path, shots(data)[["shot", "weight", "age"]])
    assert result.plan.per_batch
    assert result.plan.hyperparameters["filters"] == 16


def test_missing_files_are_one_error_with_examples(tmp_path):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight"]].assign(shot=[f"img/{one:04}.png" for one in range(ROWS)])
    (data / "img" / "0005.png").unlink()
    (data / "img" / "0006.png").unlink()
    assert "column 'shot': 2 of the 400 files that it names are missing: 'img/0005.png', 'img/0006.png'" in told(
        tmp_path, rows
    )


def test_damaged_files_are_told(tmp_path):
    data = tmp_path / "data"
    rows = notes(data, shots(data))[["shot", "note", "weight"]]
    (data / "img" / "0005.png").write_bytes(b"no picture")
    assert "1 of 400 pictures can't be read: 'img/0005.png'" in told(tmp_path, rows)


def test_files_of_several_kinds_in_one_column_are_told(tmp_path):
    data = tmp_path / "data"
    rows = notes(data, shots(data))
    rows["shot"] = ["img/" + name + ".png" if one % 3 else f"notes/{one}.txt" for one, name in enumerate(rows["shot"])]
    assert "names files of several kinds: .png, .txt" in told(tmp_path, rows[["shot", "weight"]])


def test_link_that_leads_out_of_the_folder_counts_as_missing(tmp_path):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight"]]
    (data / "img" / "0005.png").rename(tmp_path / "out.png")
    (data / "img" / "0005.png").symlink_to(tmp_path / "out.png")
    assert "1 of the 400 files that it names are missing: 'img/0005.png'" in told(tmp_path, rows)


@pytest.mark.parametrize("name", ["/tmp/x/{}.png", "../elsewhere/{}.png", "img/../img/{}.png", "./img/{}.png"])
def test_names_of_files_that_are_no_paths_below_the_folder_are_no_input_and_that_is_told(tmp_path, name):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight", "age"]]
    result = drafted(tmp_path, rows.assign(shot=[name.format(shot) for shot in rows["shot"]]))
    assert result.table_files is None
    (line,) = (line for line in result.observations if line.startswith("'shot' names files"))
    assert "0 lie below" in line
    assert {column.name: column.role for column in result.columns}["shot"] == "entity"


def test_column_with_rows_without_a_file_is_left_out_and_that_is_told(tmp_path):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight", "age"]].assign(shot=[f"img/{one:04}.png" for one in range(ROWS)])
    rows.loc[3:62, "shot"] = None
    result = drafted(tmp_path, rows)
    assert result.table_files is None
    assert any("none in 60 rows: left out" in line for line in result.observations)


@pytest.mark.parametrize("named", ["{}", "img/{}.png"])
@pytest.mark.parametrize(("value", "problem"), [("9999", "are missing: 'img/9999.png'"), (None, "none in 1 row")])
def test_one_row_without_its_file_is_an_error_however_files_are_named(tmp_path, named, value, problem):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight", "age"]].assign(shot=[named.format(f"{one:04}") for one in range(ROWS)])
    rows.loc[7, "shot"] = None if value is None else named.format(value)
    assert problem in told(tmp_path, rows)


def test_bare_names_of_several_rows_each_are_found_where_they_name_all_files(tmp_path):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight"]]
    thrice = pd.concat([rows, rows, rows], ignore_index=True).assign(weight=np.arange(3 * ROWS) * 1.5)
    result = drafted(tmp_path, thrice)
    assert result.table_files is not None
    assert (result.table_files.columns[0].name, result.windows.split.by) == ("picture", "group")


def test_id_beside_whole_paths_is_asked_nothing(tmp_path):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight"]].rename(columns={"shot": "id"})
    for one in range(ROWS):
        save(data / "right" / f"{one:04}.png", noise(one + 1000))
    rows = rows.assign(
        left=[f"img/{name}.png" for name in rows["id"]], right=[f"right/{one:04}.png" for one in range(ROWS)]
    )
    result = drafted(tmp_path, rows)
    assert result.table_files is not None
    assert [column.name for column in result.table_files.columns] == ["left", "right"]
    assert result.key == ("id",)


def test_whole_paths_of_this_machine_are_told_how_to_be_written(tmp_path):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight", "age"]].assign(shot=[f"{data}/img/{one:04}.png" for one in range(ROWS)])
    assert any("as 'img/0000.png'" in line for line in drafted(tmp_path, rows).observations)


def test_numbers_that_are_names_of_some_files_name_none(tmp_path):
    data = tmp_path / "data"
    rows = shots(data, folder="photos/")[["weight", "age"]].assign(visit=[f"{one:04}" for one in range(ROWS)])
    for one in range(300, ROWS):
        (data / "photos" / f"{one:04}.png").unlink()
    result = drafted(tmp_path, rows)
    assert result.table_files is None
    assert "75% of the values of 'visit' name files (photos/….png): too few for it to be meant" in result.observations


@pytest.mark.parametrize(("folder", "suffix"), [("masks/", ".png"), ("img/", ".txt")])
def test_bare_names_that_files_of_two_places_have_are_an_error_that_names_both(tmp_path, folder, suffix):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight"]]
    for one in range(ROWS):
        other = data / folder / f"{one:04}{suffix}"
        other.parent.mkdir(exist_ok=True)
        shutil.copy(data / "img" / f"{one:04}.png", other)
    text = told(tmp_path, rows)
    assert "its values name files in several places: " in text
    assert f"{folder}…{suffix}" in text
    assert "img/….png" in text


@pytest.mark.parametrize("options", [{}, {"keys": ("shot",)}, {"group": "shot"}], ids=["id", "key", "group"])
def test_column_that_is_key_or_group_stays_and_its_files_get_one_of_their_own(tmp_path, monkeypatch, options):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight", "age"]]
    if not options:
        # Found as the key by its name.
        rows = rows.rename(columns={"shot": "id"})
    name = str(rows.columns[0])
    folder, built, result = laid_out(tmp_path, monkeypatch, rows, **options)
    made_rows = pd.read_parquet(built / "part-0001.parquet")
    assert made_rows[[name, "picture"]].iloc[7].tolist() == ["0007", "files/part-0001/img/0007.png"]
    assert result.key == (("row",) if "group" in options else (name,))
    contract = load_contract(folder / "contract.yaml")
    assert set(contract.feature_columns) == {"picture", "age"}
    assert tried(folder)["to_tensors"].evidence


def test_rows_of_one_picture_lie_in_one_split(tmp_path, monkeypatch):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight"]]
    twice = pd.concat([rows, rows.assign(weight=rows["weight"] + 1)], ignore_index=True)
    twice["shot"] = [f"img/{name}.png" for name in twice["shot"]]
    _, built, result = laid_out(tmp_path, monkeypatch, twice)
    assert result.windows.split.by == "group"
    assert result.windows.split.group == "shot"
    assert any("several rows name one picture" in line for line in result.observations)
    assert not any("not seen" in line for line in result.observations)
    assert pd.read_parquet(built / "part-0001.parquet")["picture"].nunique() == ROWS


def test_two_columns_of_pictures_are_brought_to_one_size_and_two_names_of_the_same_files_are_one(tmp_path, monkeypatch):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight"]].assign(left=[f"img/{one:04}.png" for one in range(ROWS)])
    for one in range(ROWS):
        save(data / "right" / f"{one}.png", noise(one, (20, 40), ()))
    rows["again"] = rows["left"]
    rows["right"] = [f"right/{one}.png" for one in range(ROWS)]
    folder, _, result = laid_out(tmp_path, monkeypatch, rows)
    assert result.table_files is not None
    assert [column.name for column in result.table_files.columns] == ["left", "right"]
    assert "'again' names the files that another column names, which are read once" in result.observations
    assert result.table_files.size == (20, 40)
    assert result.table_files.mode == "RGB"
    tensors = tried(folder)["to_tensors"].evidence
    assert "picture left (64, 3, 20, 40)" in tensors
    assert "picture right (64, 3, 20, 40)" in tensors
    is_tidy(folder)


@pytest.mark.parametrize("value", ["../../secret", "/etc/hostname", "none", None])
def test_next_part_that_names_no_file_of_its_own_stops_the_build(tmp_path, monkeypatch, value):
    data = tmp_path / "data"
    rows = shots(data, folder="")[["shot", "weight"]]
    _, _, result = laid_out(tmp_path, monkeypatch, rows)
    save(tmp_path / "secret.png", noise(0))
    (tmp_path / "source" / "part-0002").mkdir()
    pd.DataFrame({"shot": [value], "weight": [1.5]}).to_parquet(tmp_path / "source" / "part-0002" / "rows.parquet")
    with pytest.raises(SystemExit, match="part-0002: shot holds"):
        load_dataset(result.dataset_text, tmp_path).build(tmp_path / "source", tmp_path / "both", 2)
    assert not (tmp_path / "both" / "part-0002.parquet").exists()


def test_table_among_more_than_is_looked_at_names_nothing(tmp_path, monkeypatch):
    data = tmp_path / "data"
    rows = shots(data)[["shot", "weight", "age"]]
    monkeypatch.setattr(table_files, "MOST_FILES", ROWS)
    assert drafted(tmp_path, rows).table_files is None
    # By whole paths nothing has to be searched.
    (tmp_path / "whole").mkdir()
    whole = shots(tmp_path / "whole" / "data").assign(shot=[f"img/{one:04}.png" for one in range(ROWS)])
    assert drafted(tmp_path / "whole", whole[["shot", "weight", "age"]]).table_files is not None


def test_table_among_files_that_no_column_names_is_a_table(tmp_path):
    data = tmp_path / "data"
    rows = shots(data)[["age", "place", "weight"]]
    result = drafted(tmp_path, rows)
    assert result.table_files is None
    assert not any("files" in line for line in result.observations)


def sounds(data: Path, rows: int = ROWS) -> pd.DataFrame:
    """A table of sounds: a name for each row, whose file lies beside it."""
    (data / "wav").mkdir(parents=True)
    for one in range(rows):
        (data / "wav" / f"c{one:04}.wav").write_bytes(b"RIFF")
    label = ["yes", "no"]
    return pd.DataFrame(
        {"clip": [f"c{one:04}" for one in range(rows)], "said": [label[one % 2] for one in range(rows)]}
    )


def test_names_of_sounds_are_told_with_what_to_do(tmp_path):
    rows = sounds(tmp_path / "data")
    alone = told(tmp_path, rows, target="said", positive="yes")
    beside = sounds(tmp_path / "b" / "data").assign(seconds=np.arange(ROWS) * 7 % 31)
    result = drafted(tmp_path / "b", beside, target="said", positive="yes")
    for text in (alone, "\n".join(result.observations)):
        assert "'clip' names files that no draft reads, such as wav/c0000.wav: make .npy arrays of them" in text
        assert "Arrays beside a table" in text


def test_texts_that_are_names_of_some_sounds_name_none(tmp_path):
    rows = sounds(tmp_path / "data").assign(place=[f"c{one % 40:04}" for one in range(ROWS)], age=range(ROWS))
    weight = np.random.default_rng(0).normal(60, 8, ROWS)
    result = drafted(tmp_path, rows.drop(columns="clip").assign(weight=weight))
    assert not any("files" in line for line in result.observations)


def test_folder_with_a_table_names_the_table(tmp_path, monkeypatch, capsys):
    set_up(tmp_path, monkeypatch)
    data = tmp_path / "data"
    request = asked(data, shots(data), suffix=".csv")
    assert main(["new", "shop", "--data", str(data), "--target", "weight"]) != 0
    assert f"name the table: --data {request.data}" in capsys.readouterr().err
