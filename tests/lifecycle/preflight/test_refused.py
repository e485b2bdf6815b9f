"""A use case that cannot be loaded, as a pull request is told of it: each problem with its file and line."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trainworthy.lifecycle.contract.read import contract_problems
from trainworthy.lifecycle.errors import Problem, SettingsError, UseCaseError
from trainworthy.lifecycle.gates.ci import github_annotations, junit
from trainworthy.lifecycle.gates.refused import place_of, refused_rows
from trainworthy.lifecycle.use_case import load_use_case

TOY = Path(__file__).parents[2] / "toy" / "use_cases" / "toy"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(TOY, tmp_path / "toy"))


def edited(folder: Path, name: str, old: str, new: str) -> int:
    """Replace a text once; gives the number of its line."""
    text = (folder / name).read_text()
    assert text.count(old) == 1
    (folder / name).write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def refusal(folder: Path) -> UseCaseError:
    with pytest.raises(UseCaseError) as refused:
        load_use_case(folder)
    return refused.value


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("use_case.yaml", "epochs: 6", "epochs: many"),
        ("use_case.yaml", "stages: {smoke", "stages: }{smoke"),
        ("use_case.yaml", "sku: local-2cpu", "skus: local-2cpu"),
        ("model.py", "return Network", "return return"),
    ],
)
def test_refused_use_case_is_annotated_where_it_is_wrong(folder, name, old, new):
    line = edited(folder, name, old, new)
    rows = refused_rows("use_case", refusal(folder), folder)
    assert (name, line) in [(row.file, row.line) for row in rows]
    told = github_annotations(rows, "use_cases/toy", ())
    assert any(one.startswith(f"::error file=use_cases/toy/{name},line={line},title=") for one in told)


@pytest.mark.parametrize(
    ("old", "new"),
    [("schema:", "schema: ["), ("value: target_source}", "value: target_sorce}")],
)
def test_refused_contract_is_annotated_where_it_is_wrong(folder, old, new):
    line = edited(folder, "contract.yaml", old, new)
    problems = contract_problems(folder / "contract.yaml")
    assert problems
    places = [place_of(problem, folder) for problem in problems]
    assert all(file == "contract.yaml" for file, _ in places)
    assert min(abs(found - line) for _, found in places) <= 3, (line, places)


def test_refused_use_case_is_a_failed_test_case_a_problem(folder):
    edited(folder, "use_case.yaml", "owner:", "ownr:")
    (folder / "model.py").write_bytes(b"\xff\xfe")
    error = refusal(folder)
    suite = ElementTree.fromstring(junit("toy", refused_rows("use_case", error, folder), "2026-01-01", {}))
    cases = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert len(cases) == len(error.problems) == 2
    assert "did you mean 'owner'?" in (cases["use_case.yaml: ownr"].text or "")
    assert "not UTF-8" in (cases["model.py"].get("message") or "")
    assert suite.get("failures") == "2"


def test_refused_step_without_a_file_is_told_at_the_use_case(folder):
    (row,) = refused_rows("dataset", SettingsError("no such version", value="v7", fix="name v1"), folder)
    assert (row.step, row.id, row.file, row.line) == ("dataset", "SettingsError", "use_case.yaml", 1)
    assert "'v7'" in row.evidence
    assert place_of(Problem("use_case.yaml: gone.deep", "missing", "add it"), folder) == ("use_case.yaml", 1)
