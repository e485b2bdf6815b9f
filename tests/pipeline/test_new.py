"""`trainworthy new`: a use case from a table, or every problem at once and nothing written."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from toy_project import ROOT

from expectations.validate import contract_check, validate_frame
from lifecycle.contract.model import load_contract
from lifecycle.errors import TrainworthyError
from lifecycle.use_case import load_use_case
from pipeline.cli import main
from pipeline.scaffold.found import find_out
from pipeline.scaffold.request import Request

HOSTILE = (
    "two words",
    "<script>alert(1)</script>",
    'a "quoted" one',
    "größe",
    "no: [yes",
    "line\nbreak",
    "{{ x }}",
    "#",
)


def table(days: int = 60, a_day: int = 20) -> pd.DataFrame:
    """Healthy rows: a key, a time, inputs of several types, and a target of two texts."""
    generator = np.random.default_rng(1)
    rows = days * a_day
    x = generator.normal(size=rows)
    return pd.DataFrame(
        {
            "visit_id": np.arange(rows),
            "at": pd.Timestamp("2024-01-01T00:00:00") + pd.to_timedelta(np.arange(rows) * 1440 // a_day, unit="min"),
            "x": x,
            "place": generator.choice(["north", "south"], rows),
            "bought": np.where(x + generator.normal(size=rows) > 0, "yes", "no"),
        }
    )


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """An empty project, and a state folder that does not exist yet."""
    return set_up(tmp_path, monkeypatch)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def new(project: Path, rows: pd.DataFrame | None, *options: str, suffix: str = ".csv", name: str = "shop") -> int:
    """Run the command on the rows in a file outside of the project."""
    arguments = ["new", name]
    if rows is not None:
        path = project.parent / f"rows{suffix}"
        rows.to_csv(path, index=False) if suffix == ".csv" else rows.to_parquet(path, index=False)
        arguments += ["--data", str(path)]
        options = options or ("--target", "bought", "--time", "at")
    return main([*arguments, *options])


def found(rows: pd.DataFrame, tmp_path: Path, *, suffix: str = ".parquet", **fields):
    """What would be written for the rows, without DVC."""
    path = tmp_path / f"rows{suffix}"
    rows.to_csv(path, index=False) if suffix == ".csv" else rows.to_parquet(path, index=False)
    asked = {"target": "bought", "time": "at", "positive": None, "keys": (), "owner": None}
    (tmp_path / "work").mkdir()
    return find_out(Request(name="shop", data=path, **(asked | fields)), path, tmp_path / "work")


def roles(rows: pd.DataFrame, tmp_path: Path, **fields) -> dict[str, str]:
    result, problems = found(rows, tmp_path, **fields)
    assert problems == []
    assert result is not None
    return {column.name: column.role for column in result.columns}


def told(rows: pd.DataFrame, tmp_path: Path, **fields) -> str:
    """All problems as one text."""
    result, problems = found(rows, tmp_path, **fields)
    assert result is None
    assert all(problem.fix for problem in problems)
    return "\n".join(map(str, problems))


def set_up(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    (folder / "project" / "use_cases").mkdir(parents=True)
    patch.setenv("TRAINWORTHY_USE_CASES", str(folder / "project" / "use_cases"))
    patch.setenv("TRAINWORTHY_VAR", str(folder / "state"))
    patch.setenv("PYTHONPATH", str(ROOT))
    return folder / "project"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A project with a use case from a CSV file; dvc.yaml had a stage and comments before. Read only."""
    with pytest.MonkeyPatch.context() as patch:
        project = set_up(tmp_path_factory.mktemp("made"), patch)
        (project / "dvc.yaml").write_text(STAGES)
        assert new(project, table()) == 0
    return project


STAGES = "# about stages\nstages:\n  # about one\n  one: {cmd: echo one}\n\n# about plots\nplots: []\n"


def built_rows(project: Path) -> pd.DataFrame:
    """The rows of the published version."""
    (path,) = (project.parent / "state" / "datasets" / "shop").glob("*/files/*.parquet")
    return pd.read_parquet(path)


def test_new_from_a_file_loads_and_its_rows_keep_its_contract(made):
    contract = load_contract(load_use_case(made / "use_cases" / "shop").contract_path)
    rows = built_rows(made)
    assert contract_check(validate_frame(rows, contract)).status == "pass"
    assert contract.feature_columns == ("x", "place")
    assert (made / "data" / "shop_source" / "part-0001.csv").read_bytes() == (made.parent / "rows.csv").read_bytes()
    assert yaml.safe_load((made / "data" / "versions.yaml").read_text())["shop"]["v1"]["rows"] == len(rows) == 1200
    assert set(rows["bought"].unique()) == {0, 1}


def test_new_without_a_file_makes_example_rows_and_names_the_next_commands(project, capsys):
    assert new(project, None) == 0
    out = capsys.readouterr().out
    for command in ("trainworthy check shop", "-j preflight_shop", "-j train_shop -c "):
        assert command in out
    contract = load_contract(load_use_case(project / "use_cases" / "shop").contract_path)
    assert contract_check(validate_frame(built_rows(project), contract)).status == "pass"


@pytest.mark.parametrize("command", [("check", "--ignore", "TID253"), ("format", "--check")])
def test_new_files_are_as_the_formatter_and_the_linter_want_them(made, command):
    ruff = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*ruff, str(made / "use_cases" / "shop")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_new_stage_goes_behind_the_others_and_comments_stay(made):
    text = (made / "dvc.yaml").read_text()
    assert [line for line in text.splitlines() if line in STAGES.splitlines()] == STAGES.splitlines()
    assert list(yaml.safe_load(text)["stages"]) == ["one", "shop"]
    assert text.index("  shop:") < text.index("# about plots")


@pytest.mark.parametrize(
    "before", ["stages: {one: {cmd: echo}}\n", "stages:\n    one:\n        cmd: echo\n", "[1]\n", "a: [\n"]
)
def test_new_stage_that_does_not_fit_is_refused_and_nothing_is_left(project, before, capsys):
    (project / "dvc.yaml").write_text(before)
    assert new(project, table()) == 1
    assert "dvc.yaml" in capsys.readouterr().err
    assert files(project) == {"dvc.yaml": before.encode()}


def test_new_that_fails_on_its_last_file_leaves_nothing(project, monkeypatch, capsys):
    (project / "dvc.yaml").write_text("stages:\n  one: {cmd: echo one}\n")
    before = files(project)

    def full(*_):
        raise TrainworthyError("the disk is full", fix="free some space")

    monkeypatch.setattr("pipeline.scaffold.create.add_version", full)
    assert new(project, table()) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert files(project) == before
    assert [path.name for path in project.iterdir()] != []
    assert not (project / "data").exists()


def test_new_everything_wrong_is_told_at_once_and_nothing_is_written(project, capsys):
    options = ("--target", "bougt", "--time", "when", "--key", "visit", "--owner", "nobody")
    assert new(project, table(), *options, name="Shop") == 1
    err = capsys.readouterr().err
    for text in ("'Shop'", "did you mean 'bought'?", "--time", "did you mean 'visit_id'?", "--owner", "'nobody'"):
        assert text in err, err
    assert files(project) == {}
    assert not (project.parent / "state").exists()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/b", "", ".", "A", "a b", "a\n", "x" * 42, "1a"])
def test_new_name_that_would_leave_its_folder_is_refused(project, name, capsys):
    assert new(project, None, name=name) == 1
    assert "can't be the name" in capsys.readouterr().err
    assert files(project) == {}


@pytest.mark.parametrize("taken", ["use_cases/shop/", "data/shop.yaml", "data/shop_source/", "dvc.yaml"])
def test_new_name_that_is_taken_is_refused(project, taken, capsys):
    path = project / taken
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if taken.endswith("/") else path.write_text("stages: {shop: {cmd: echo}}\n")
    before = files(project)
    assert new(project, table()) == 1
    assert "take another name" in capsys.readouterr().err
    assert files(project) == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--target", "bought"), "--time"),
        (("--time", "at"), "--target"),
        (("--target", "at", "--time", "at"), "two names"),
    ],
)
def test_new_argument_that_is_missing_or_doubled_is_told(project, options, text, capsys):
    assert new(project, table(), *options) == 1
    err = capsys.readouterr().err
    assert text in err or "is the target too" in err
    assert files(project) == {}


@pytest.mark.parametrize(("file", "text"), [("rows.txt", "neither CSV nor Parquet"), ("none.csv", "no such file"),
                                            ("empty.csv", "can't be read"), ("bad.parquet", "can't be read"),
                                            ("latin.csv", "can't be read"), ("header.csv", "no rows"),
                                            ("twice.csv", "share a name")])  # fmt: skip
def test_new_file_that_cannot_be_read_is_told(project, file, text, capsys):
    contents = {"empty.csv": b"", "bad.parquet": b"PAR", "latin.csv": b"a,b\n\xe9,1\n", "header.csv": b"a,b\n",
                "twice.csv": b"a,a\n1,2\n", "rows.txt": b"a\n"}  # fmt: skip
    path = project.parent / file
    if file in contents:
        path.write_bytes(contents[file])
    assert main(["new", "shop", "--data", str(path), "--target", "a", "--time", "b"]) == 1
    assert text in capsys.readouterr().err
    assert files(project) == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"bought": "yes"}, "is not binary"),
        ({"bought": None}, "is not binary"),
        ({"bought": range(1200)}, "1200 different values"),
        ({"at": "soon"}, "no column of times"),
        ({"at": range(1200)}, "no column of times"),
        ({"at": None}, "is empty in 1,200 rows"),
        ({"x": float("inf")}, "infinite"),
    ],
)
def test_new_column_that_cannot_be_used_is_told(tmp_path, change, text):
    assert text in told(table().assign(**change), tmp_path)


def test_new_nested_column_is_told(tmp_path):
    assert "holds values of type" in told(table().assign(x=[[1, 2]] * 1200), tmp_path)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (table(days=20, a_day=60), "span too few days"),
        (table(days=60, a_day=10), "too few rows"),
        (table().sort_values("bought").assign(at=table()["at"].to_numpy()), "one class only"),
    ],
)
def test_new_rows_that_cannot_be_split_are_told(tmp_path, rows, text):
    assert text in told(rows, tmp_path)


def test_new_key_that_repeats_or_is_empty_is_told(tmp_path):
    assert "rows share theirs" in told(table(), tmp_path, keys=("place",))


def test_new_rows_without_a_key_are_numbered(tmp_path):
    rows = pd.concat([table(), table()])[["at", "x", "place", "bought"]]
    result, problems = found(rows, tmp_path)
    assert problems == []
    assert result is not None
    assert result.key == ("row",)
    assert result.rows["row"].tolist() == list(range(len(rows)))


@pytest.mark.parametrize(
    ("values", "positive", "table_of_labels"),
    [
        (["yes", "no"], None, {"no": 0, "yes": 1}),
        ([1, 0], None, {0: 0, 1: 1}),
        ([1.0, 0.0], None, {0.0: 0, 1.0: 1}),
        ([True, False], None, {False: 0, True: 1}),
        (["a", "b"], "b", {"a": 0, "b": 1}),
        ([1, 2], "2", {1: 0, 2: 1}),
        (["Yes", "No"], "NO", {"No": 1, "Yes": 0}),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_new_target_of_two_values_of_any_type_becomes_0_and_1(tmp_path, values, positive, table_of_labels, suffix):
    rows = table()
    first = rows["bought"] == "yes"
    rows["bought"] = np.where(first, values[0], values[1])
    result, problems = found(rows, tmp_path, positive=positive, suffix=suffix)
    assert problems == []
    assert result is not None
    assert result.labels.table == table_of_labels
    as_label = first if list(table_of_labels.values())[sorted(values).index(values[0])] else ~first
    assert result.rows["bought"].tolist() == as_label.astype(int).tolist()


def test_new_target_whose_positive_value_is_not_obvious_or_wrong_is_told(tmp_path):
    rows = table().assign(bought=lambda r: r["bought"].map({"yes": "left", "no": "stayed"}))
    assert "--positive left or --positive stayed" in told(rows, tmp_path)
    (tmp_path / "work").rmdir()
    assert "did you mean 'left'?" in told(rows, tmp_path, positive="lef")


def test_new_target_with_nulls_leaves_rows_without_a_label(tmp_path):
    rows = table()
    rows.loc[::7, "bought"] = None
    result, _ = found(rows, tmp_path, suffix=".csv")
    assert result is not None
    assert result.rows["bought"].isna().tolist() == (rows.index % 7 == 0).tolist()


def test_new_imbalanced_target_is_taken_if_each_split_has_both(tmp_path):
    rows = table().assign(bought=lambda r: np.where(r.index % 40 == 3, "yes", "no"))
    assert roles(rows, tmp_path)["x"] == "feature"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_new_columns_of_each_kind_get_their_type_and_role(tmp_path, suffix):
    rows = table()
    n, generator = len(rows), np.random.default_rng(3)
    rows["same"], rows["empty"] = "x", None
    rows["counts"] = pd.array(generator.integers(0, 9, n), dtype="Int64")
    rows.loc[::5, "counts"] = None
    rows["flag"] = generator.random(n) < 0.5
    rows["maybe"] = pd.array(generator.random(n) < 0.5, dtype="boolean")
    rows.loc[::9, "maybe"] = None
    rows["word"] = [f"w{number}" for number in generator.integers(0, 60, n)]
    rows["name"] = [f"n{number}" for number in range(n)]
    rows["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 9999, n), unit="h")
    rows["postcode"] = [f"0{number}" for number in generator.integers(100, 120, n)]
    rows["clock"] = np.arange(n) * 3 + generator.integers(0, 3, n)
    rows["account_id"] = generator.integers(0, 50, n)
    result, problems = found(rows, tmp_path, suffix=suffix)
    assert problems == []
    assert result is not None
    expected = {
        "same": ("text", "other"), "empty": ("number", "other"), "counts": ("number", "feature"),
        "flag": ("boolean", "feature"), "maybe": ("boolean", "feature"), "word": ("text", "feature"),
        "name": ("text", "entity"), "since": ("time", "feature"), "postcode": ("text", "feature"),
        "clock": ("integer", "other"), "account_id": ("integer", "entity"), "visit_id": ("integer", "key"),
    }  # fmt: skip
    found_roles = {column.name: column.role for column in result.columns}
    assert {name: (result.kinds[name], found_roles[name]) for name in expected} == expected


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_new_time_with_and_without_a_zone_is_read(tmp_path, zone, suffix):
    rows = table().assign(at=lambda r: r["at"].dt.tz_localize(zone))
    result, problems = found(rows, tmp_path, suffix=suffix)
    assert problems == []
    assert result is not None
    assert result.kinds["at"] == ("instant" if zone else "time")
    assert result.rows["day"].dt.tz is None


@pytest.mark.parametrize("copy", ["text", "number", "noisy", "nulls"])
def test_new_column_that_tells_the_target_all_alone_is_no_input_and_is_told(tmp_path, copy):
    rows = table()
    yes = rows["bought"] == "yes"
    rows["leak"] = {
        "text": np.where(yes, "a", "b"),
        "number": yes * 2.5,
        "noisy": yes * 3 + np.random.default_rng(0).normal(size=len(rows)),
        "nulls": np.where(yes, 1.0, np.nan) * np.random.default_rng(0).normal(size=len(rows)),
    }[copy]
    result, _ = found(rows, tmp_path)
    assert result is not None
    (leak,) = [column for column in result.columns if column.name == "leak"]
    assert (leak.role, "tells the target all alone" in leak.remark) == ("other", True)
    assert {column.name: column.role for column in result.columns}["x"] == "feature"


def test_new_columns_with_hostile_names_break_out_of_no_file(project, capsys):
    rows = table()
    generator = np.random.default_rng(5)
    for name in HOSTILE:
        rows[name] = generator.choice(["p", "q", 'r"\n'], len(rows))
    rows = rows.rename(columns={"bought": "bought: #?", "at": "a\tt"})
    assert new(project, rows, "--target", "bought: #?", "--time", "a\tt", suffix=".parquet") == 0
    folder = project / "use_cases" / "shop"
    assert set(HOSTILE) < set(load_contract(folder / "contract.yaml").feature_columns)
    capsys.readouterr()
    assert main(["check", "shop"]) == 0, capsys.readouterr().out


def test_new_second_part_is_published_as_a_next_version(made, tmp_path, monkeypatch, capsys):
    for name in ("project", "state"):
        shutil.copytree(made.parent / name, tmp_path / name)
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(tmp_path / "project" / "use_cases"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    later = table().assign(at=lambda r: r["at"] + pd.Timedelta(days=60), visit_id=lambda r: r["visit_id"] + 1200)
    later.to_csv(tmp_path / "project" / "data" / "shop_source" / "part-0002.csv", index=False)
    assert main(["datasets", "publish", "shop", "v2", "parts=2"]) == 0
    assert "2,400 rows" in capsys.readouterr().out
