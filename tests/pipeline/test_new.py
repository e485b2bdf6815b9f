"""`trainworthy new`: a use case from a table, or every problem at once and nothing written."""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from shop_rows import found, table
from toy_project import ROOT

from trainworthy.expectations.validate import validate_frame
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.result import contract_check
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.spec.task import TaskSpec
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.cli import main, parser
from trainworthy.pipeline.scaffold.project import lay_out
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.pipeline.scaffold.target import FoundTarget

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
# Ends the docstring of a file that it is written into.
CODE = 'a"""\nraise SystemExit("it ran")\n"""'


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


def set_up(folder: Path, patch: pytest.MonkeyPatch, use_cases: str = "use_cases") -> Path:
    (folder / "project" / use_cases).mkdir(parents=True)
    patch.setenv("TRAINWORTHY_USE_CASES", str(folder / "project" / use_cases))
    patch.setenv("TRAINWORTHY_VAR", str(folder / "state"))
    patch.setenv("PYTHONPATH", str(ROOT / "src"))
    return folder / "project"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A project with a use case from a CSV file; two of the files had something in them before. Read only."""
    with pytest.MonkeyPatch.context() as patch:
        project = set_up(tmp_path_factory.mktemp("made"), patch)
        (project / "dvc.yaml").write_text(STAGES)
        (project / "data").mkdir()
        (project / "data" / ".gitignore").write_text("/lookups/")
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
    assert contract.feature_columns == ("x", "place", "hour", "weekday")
    assert (made / "data" / "shop_source" / "part-0001.csv").read_bytes() == (made.parent / "rows.csv").read_bytes()
    assert yaml.safe_load((made / "data" / "versions.yaml").read_text())["shop"]["v1"]["rows"] == len(rows) == 1200
    assert set(rows["bought"].unique()) == {0, 1}


def test_new_without_a_file_makes_example_rows_and_names_the_next_commands(project, capsys):
    assert new(project, None) == 0
    out = capsys.readouterr().out
    for command in ("trainworthy check shop", "train shop --preflight", "train shop -c "):
        assert command in out
    contract = load_contract(load_use_case(project / "use_cases" / "shop").contract_path)
    assert contract_check(validate_frame(built_rows(project), contract)).status == "pass"


@pytest.mark.parametrize("command", [("check", "--ignore", "TID253"), ("format", "--check")])
def test_new_files_are_as_the_formatter_and_the_linter_want_them(made, command):
    ruff = [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*ruff, str(made / "use_cases" / "shop")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_new_of_rows_without_times_prints_what_it_saw_and_gives_a_use_case_that_can_be_checked(project, capsys):
    rows = table().drop(columns="at").assign(user_id=np.arange(1200) % 150, note="same")
    rows.loc[:59, "bought"] = None
    assert new(project, pd.concat([rows, rows.tail(3)]), "--target", "bought", "--key", "visit_id") == 1
    assert "rows share theirs" in capsys.readouterr().err
    assert new(project, rows, "--target", "bought") == 0
    out = capsys.readouterr().out
    for line in (
        "Primary key: visit_id",
        "no times: 20% of the values of user_id are the benchmark",
        "1,200 rows, 1,140 with a label; 60 without one train nothing",
        "'note' left out: it is always 'same'",
        "'user_id' left out: whole groups of it lie in one split",
    ):
        assert line in out
    assert main(["check", "shop"]) == 0, capsys.readouterr().out
    spec = load_use_case(project / "use_cases" / "shop").spec
    assert (spec.prediction_time, spec.split.by, spec.split.group_column) == (None, "group", "user_id")


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


@pytest.mark.parametrize("ignored", [None, "/lookups/\n"])
def test_new_that_fails_on_its_last_file_leaves_nothing(project, monkeypatch, capsys, ignored):
    (project / "dvc.yaml").write_text("stages:\n  one: {cmd: echo one}\n")
    if ignored:
        (project / "data").mkdir()
        (project / "data" / ".gitignore").write_text(ignored)
    before = files(project)

    def full(*_):
        raise TrainworthyError("the disk is full", fix="free some space")

    monkeypatch.setattr("trainworthy.pipeline.scaffold.create.add_version", full)
    assert new(project, table()) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert files(project) == before
    assert [path.name for path in project.iterdir()] != []
    assert (project / "data").exists() == bool(ignored)


def test_new_of_a_name_that_another_call_takes_meanwhile_is_refused_and_the_other_stays(project, monkeypatch, capsys):
    def overtaken(*arguments):
        monkeypatch.setattr("trainworthy.pipeline.scaffold.create.lay_out", lay_out)
        assert new(project, table()) == 0
        return lay_out(*arguments)

    monkeypatch.setattr("trainworthy.pipeline.scaffold.create.lay_out", overtaken)
    assert new(project, None) == 1
    assert "meanwhile" in capsys.readouterr().err
    assert load_use_case(project / "use_cases" / "shop").spec.target == "bought"
    assert (project / "data" / "shop_source" / "part-0001.csv").is_file()
    assert (project / "data" / "shop.yaml").is_file()
    assert list(yaml.safe_load((project / "dvc.yaml").read_text())["stages"]) == ["shop"]


def test_new_removes_nothing_that_came_into_its_way_after_its_questions(project, monkeypatch, capsys):
    rows = project / "data" / "shop_source" / "part-0001.csv"

    def overtaken(*arguments):
        rows.parent.mkdir(parents=True)
        rows.write_text("of somebody else")
        return lay_out(*arguments)

    monkeypatch.setattr("trainworthy.pipeline.scaffold.create.lay_out", overtaken)
    assert new(project, table()) == 1
    assert "meanwhile" in capsys.readouterr().err
    assert files(project) == {"data/shop_source/part-0001.csv": b"of somebody else"}
    assert not (project / "use_cases" / "shop").exists()


def test_new_part_with_values_that_do_not_fit_is_told_by_file_and_column(made, tmp_path):
    module = runpy.run_path(str(made / "use_cases" / "shop" / "dataset.py"))
    part = table().astype("str").assign(x="?", visit_id="none")
    part.to_csv(tmp_path / "part-0002.csv", index=False)
    with pytest.raises(SystemExit) as raised:
        module["read"](tmp_path / "part-0002.csv")
    for text in ("part-0002.csv: ", "column visit_id does not fit 'integer': ", "column x does not fit 'number': "):
        assert text in str(raised.value)


def test_new_texts_that_mean_a_missing_value_are_named_and_read_as_such(project, tmp_path, capsys):
    rows = table().astype({"x": "str"})
    rows.loc[::40, "x"], rows.loc[1::40, "place"] = ".", "?"
    draft, problems = found(rows, tmp_path, suffix=".csv")
    assert draft is not None, problems
    (line,) = [line for line in draft.observations if "'x' is read as text" in line]
    assert "others are not: '.' (30); if that means a missing value, draft the use case with --null=." in line
    assert new(project, rows, "--target", "bought", "--time", "at", "--null=.", "--null=?") == 0
    assert "is read as text" not in capsys.readouterr().out
    module = runpy.run_path(str(project / "use_cases" / "shop" / "dataset.py"))
    assert (module["TYPES"]["x"], module["NULLS"]) == ("number", [".", "?"])
    read = module["read"](project / "data" / "shop_source" / "part-0001.csv")
    assert read["x"].isna().to_numpy().nonzero()[0].tolist() == list(range(0, len(rows), 40))
    assert read["place"].isna().sum() == len(rows) // 40


@pytest.mark.parametrize("text", ["-n/a", "n.a.", "no value"])
def test_new_text_of_a_missing_value_that_is_shown_can_be_given_as_it_is(project, tmp_path, text):
    rows = table().astype({"x": "str"})
    rows.loc[::40, "x"] = text
    draft, problems = found(rows, tmp_path, suffix=".csv")
    assert draft is not None, problems
    (line,) = [line for line in draft.observations if "'x' is read as text" in line]
    (option,) = shlex.split(line.partition("draft the use case with ")[2])
    (again_in := tmp_path / "again").mkdir()
    again, problems = found(rows, again_in, suffix=".csv", nulls=(option.removeprefix("--null="),))
    assert again is not None, problems
    assert again.kinds["x"] == "number"
    parsed = parser().parse_args(["new", "shop", option])
    assert parsed.null == [text]


def test_new_dashes_that_no_option_can_name_are_to_be_left_empty(tmp_path):
    rows = table().astype({"x": "str"})
    rows.loc[::40, "x"] = "--"
    draft, problems = found(rows, tmp_path, suffix=".csv")
    assert draft is not None, problems
    (line,) = [line for line in draft.observations if "'x' is read as text" in line]
    assert line.endswith("'--' (30); if that means a missing value, leave the fields empty")


def test_new_texts_of_missing_values_are_for_csv_files(project, capsys):
    assert new(project, table(), "--target", "bought", "--time", "at", "--null", ".", suffix=".parquet") == 1
    assert "--null: is for CSV files" in capsys.readouterr().err
    assert files(project) == {}


def test_new_rows_are_ignored_by_git_and_what_rebuilds_them_is_not(made, tmp_path):
    copy = shutil.copytree(made, tmp_path / "copy")
    (copy / "data" / "shop").mkdir()
    (copy / "data" / "shop" / "part-0001.parquet").touch()
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=copy, check=True)
    listed = subprocess.run(["git", "ls-files", "data"], cwd=copy, check=True, capture_output=True, text=True).stdout
    assert listed.split() == ["data/.gitignore", "data/shop.yaml", "data/versions.yaml"]
    assert (copy / "data" / ".gitignore").read_text() == "/lookups/\n/shop/\n/shop_source/\n"


@pytest.mark.parametrize("name", ["yes", "null"])
def test_new_name_that_yaml_reads_as_something_else_stays_a_name(project, name):
    assert new(project, None, name=name) == 0
    assert list(yaml.safe_load((project / "dvc.yaml").read_text())["stages"]) == [name]
    spec = load_use_case(project / "use_cases" / name).spec
    assert (spec.name, spec.dataset.name) == (name, name)


def test_new_folder_that_a_shell_or_yaml_would_read_as_something_else_is_quoted(tmp_path, monkeypatch, capsys):
    name = "my cases; exit 7, [x] & 'y'"
    project = set_up(tmp_path, monkeypatch, name)
    assert new(project, None) == 0
    assert shlex.quote(os.path.relpath(project / name / "shop" / "first_model.yaml")) in capsys.readouterr().out
    assert yaml.safe_load((project / "dvc.yaml").read_text())["stages"]["shop"]["deps"] == [
        f"{name}/shop/dataset.py",
        "data/shop_source",
    ]


def test_new_everything_wrong_is_told_at_once_and_nothing_is_written(project, capsys):
    options = ("--target", "bougt", "--time", "when", "--key", "visit", "--owner", "nobody")
    assert new(project, table(), *options, name="Shop") == 1
    err = capsys.readouterr().err
    for text in ("'Shop'", "did you mean 'bought'?", "--time", "did you mean 'visit_id'?", "--owner", "'nobody'"):
        assert text in err, err
    assert files(project) == {}
    assert not (project.parent / "state").exists()


@pytest.mark.parametrize(
    "name", ["../out", "/tmp/out", "a/b", "", ".", "A", "a b", "a\n", "x" * 42, "1a", r"a\x", CODE]
)
def test_new_name_that_would_leave_its_folder_is_refused(project, name, capsys):
    assert new(project, None, name=name) == 1
    assert "can't be the name" in capsys.readouterr().err
    assert files(project) == {}


@pytest.mark.parametrize("template", ["dataset.py.j2", "model.py.j2", "model_language.py.j2", "parameters.yaml.j2"])
def test_new_template_refuses_a_name_that_is_none(template):
    target = FoundTarget("y", TaskSpec(kind="binary"), "", "text")
    values = {"kinds": {}, "time": "at", "target": target, "task": target.task, "unit": None, "day": "day"}
    values |= {
        "numbers": [],
        "categories": [],
        "moments": [],
        "texts": [],
        "text_files": [],
        "pictures": [],
        "files": {},
        "numbered": None,
        "parts": 1,
        "formats": {},
        "reading": None,
        "cut": None,
        "clock": {},
        "column": "x",
    }
    assert "rain" in rendered(template, name="rain", **values)
    with pytest.raises(ValueError, match="no name"):
        rendered(template, name=CODE, **values)


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
        (("--target", "bought"), "'at' holds times"),
        (("--time", "at"), "--target"),
        (("--target", "bought", "--time", "at", "--split", "hash"), "exclude each other"),
        (("--target", "bought", "--split", "group"), "--group: is missing"),
        (("--target", "bought", "--split", "hash", "--group", "place"), "has no effect"),
        (("--target", "bought", "--time-format", "%d/%m/%Y", "--split", "hash"), "--time-format"),
        (("--target", "bought", "--group", "plaec"), "did you mean 'place'?"),
        (("--target", "at", "--time", "at"), "two names"),
        (("--target", "bought", "--split", "group", "--group", "place"), "about 60 are needed"),
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
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    later = table().assign(at=lambda r: r["at"] + pd.Timedelta(days=60), visit_id=lambda r: r["visit_id"] + 1200)
    later.to_csv(tmp_path / "project" / "data" / "shop_source" / "part-0002.csv", index=False)
    assert main(["datasets", "publish", "shop", "v2", "parts=2"]) == 0
    assert "2,400 rows" in capsys.readouterr().out
