"""A file that is no YAML is told by its name, its line and what to do there."""

import shutil

import pytest
import yaml
from toy_jobs import ROOT

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.gates.refused import place_of
from trainworthy.lifecycle.unique_keys import unique_keys_loader, yaml_mistake
from trainworthy.lifecycle.use_case import load_use_case


def mistake(text):
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.load(text, unique_keys_loader())  # noqa: S506
    return yaml_mistake(caught.value, text)


@pytest.mark.parametrize(
    ("text", "line", "problem", "fix"),
    [
        ("a: 1\n\tb: 2\n", 2, "tab", "replace the tab by spaces"),
        ("a:\n\tb: 2\n", 2, "token", "replace the tab by spaces"),
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice (first in line 1)", "remove one of the two"),
        ("a: {b: 1\nc: 2\n", 2, "while parsing a flow mapping in line 1", "correct the syntax at that line"),
        ("b: 1\na: late: 7\n", 2, "not allowed", 'that holds ": " in quotes'),
        ("b: 1\na: @x\n", 2, "cannot start", "none begins with @"),
        ("b: 1\na: 2015-13-45\n", 2, "2015-13-45 is no date or time: month must be in 1..12", "correct"),
    ],
)
def test_mistake_of_yaml_is_told_with_its_line_and_what_to_do_there(text, line, problem, fix):
    told = mistake(text)
    assert told.line == line
    assert problem in told.problem
    assert told.fix.startswith(fix) or fix in told.fix
    assert "unicode string" not in str(told)
    assert told.where("a.yaml") == f"a.yaml:{line}"


def test_mistake_without_a_line_is_told_without_one():
    told = mistake("a: 1\x00")
    assert (told.line, told.where("a.yaml")) == (0, "a.yaml")
    assert "unicode string" not in told.problem
    with pytest.raises(UnicodeDecodeError) as unread:
        b"\xff".decode()
    assert yaml_mistake(unread.value).fix == "save the file as UTF-8"


def test_exponent_without_a_point_is_a_number_where_asked_and_in_quotes_a_text():
    text = "a: [1e-3, 2E5, -1e3, .5e2, '1e-3', e5, 12e, 1.5, 7]\n"
    values = yaml.load(text, unique_keys_loader(exponents=True))["a"]  # noqa: S506
    assert values == [0.001, 200000.0, -1000.0, 50.0, "1e-3", "e5", "12e", 1.5, 7]
    # A hash that was written without quotes stays one.
    assert yaml.load("a: 12e34567", unique_keys_loader()) == {"a": "12e34567"}  # noqa: S506


@pytest.mark.parametrize(
    ("name", "read"),
    [("use_case.yaml", load_use_case), ("contract.yaml", lambda folder: load_contract(folder / "contract.yaml"))],
)
def test_tab_in_a_file_of_a_use_case_is_told_by_file_and_line(tmp_path, name, read):
    folder = tmp_path / "use_cases" / "toy"
    shutil.copytree(ROOT / "tests" / "toy" / "use_cases" / "toy", folder)
    path = folder / name
    text = path.read_text()
    line = len(text.splitlines()) + 1
    path.write_text(f"{text}\twrong: 1\n")
    with pytest.raises(UseCaseError) as caught:
        read(folder)
    (problem,) = caught.value.problems
    assert problem.where == f"{name}:{line}"
    assert problem.fix.startswith("replace the tab by spaces")
    assert place_of(problem, folder) == (name, line)
    assert "unicode string" not in str(problem)
