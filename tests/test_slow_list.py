"""tests/slow.md names every test of the slow lane with its reason, and no other."""

import ast
import re
from pathlib import Path

import pytest

from tests.turns import in_turn

TESTS = Path(__file__).parent


def slow_in(path: Path) -> set[str]:
    """`file::test` for each function that pytest.mark.slow marks, whole or for some parameters; `file` for a module."""
    name, found = path.relative_to(TESTS).as_posix(), set()
    for node in ast.parse(path.read_text()).body:
        decorators = getattr(node, "decorator_list", [])
        marks = [part for owner in decorators or [node] for part in ast.walk(owner)]
        if any(isinstance(part, ast.Attribute) and ast.unparse(part).endswith("mark.slow") for part in marks):
            found.add(f"{name}::{node.name}" if isinstance(node, ast.FunctionDef) else name)
    return found


def test_slow_list_names_every_slow_test_with_a_reason():
    rows = re.findall(r"^\| `(\S+)` \| (.+) \|$", (TESTS / "slow.md").read_text(), re.MULTILINE)
    listed = [name for name, _ in rows]
    assert listed == sorted(set(listed))
    assert all(len(reason) >= 10 for _, reason in rows)
    slow = {name for path in TESTS.rglob("test_*.py") for name in slow_in(path)}
    assert {"not in tests/slow.md": slow - set(listed), "no slow test": set(listed) - slow} == {
        "not in tests/slow.md": set(),
        "no slow test": set(),
    }


def test_slow_list_sees_a_decorator_a_parameter_and_a_module(tmp_path, monkeypatch):
    monkeypatch.setattr("test_slow_list.TESTS", tmp_path)
    path = tmp_path / "test_x.py"
    path.write_text(
        "import pytest\n@pytest.mark.slow\ndef test_a(): pass\n"
        "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.slow)])\ndef test_b(n): pass\n"
        "def test_c(): pass\n"
    )
    assert slow_in(path) == {"test_x.py::test_a", "test_x.py::test_b"}
    path.write_text("import pytest\npytestmark = [pytest.mark.slow]\ndef test_a(): pass\n")
    assert slow_in(path) == {"test_x.py"}


def test_turns_share_the_files_and_leave_none_out():
    paths = [Path(f"test_{name}.py") for name in "abcdefgh"]
    turns = [in_turn(paths, f"{turn}/3") for turn in (1, 2, 3)]
    assert sorted(path for turn in turns for path in turn) == paths
    assert in_turn(paths, "1/1") == set(paths)


@pytest.mark.parametrize("turn", ["0/3", "4/3", "3"])
def test_turn_that_is_none_is_refused(turn):
    with pytest.raises(pytest.UsageError, match="Fix: --turn 1/3"):
        in_turn([], turn)
