"""docs/protection.md names tests by id: each is there, as far as this run has collected its file."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "protection.md"


def named(page: str) -> list[str]:
    """The ids of the table's last column but one, which begin below tests/."""
    return re.findall(r"^\| `[^`]+` \| [^|]+ \| `([^`]+)` \| [\d.]+ \|$", page, re.MULTILINE)


def not_written(ids: Collection[str], folder: Path) -> set[str]:
    """The ids whose file has no function of that name."""
    files = {one.partition("::")[0] for one in ids}
    written = {
        f"{file}::{name}"
        for file in files
        if (folder / file).is_file()
        for name in re.findall(r"^def (test_\w+)", (folder / file).read_text(), re.MULTILINE)
    }
    return {one for one in ids if one.partition("[")[0] not in written}


def not_collected(ids: Collection[str], collected: Collection[str]) -> set[str]:
    """Of the ids whose file was collected, those that were not."""
    files = {one.partition("::")[0] for one in collected}
    return {one for one in ids if one.partition("::")[0] in files} - {*collected}


def test_protection_page_names_tests_that_are_there():
    ids = named(PAGE.read_text())
    assert len(ids) > 250
    assert not_written(ids, TESTS) == set()


def test_protection_page_names_cases_that_this_run_has_collected(request):
    """A case that is put before another one renames it, where cases are named by their place."""
    asked = request.config.option
    narrowed = asked.keyword or asked.deselect or getattr(asked, "lf", False) or asked.markexpr not in ("", "not slow")
    if narrowed or any("::" in one for one in request.config.args):
        pytest.skip("this run was asked for some tests of a file")
    collected = [item.nodeid.removeprefix("tests/") for item in request.session.items]
    assert f"{Path(__file__).name}::{request.node.name}" in collected
    assert not_collected(named(PAGE.read_text()), collected) == set()


def test_protection_page_that_names_another_test_or_case_is_found(tmp_path):
    page = "| `a.b` | gate | `test_x.py::test_a[case1-a | b]` | 0.1 |\n| `c` | control | **not protected** | 0.0 |\n"
    (ids,) = [named(page)]
    assert ids == ["test_x.py::test_a[case1-a | b]"]
    assert not_written(ids, tmp_path) == {*ids}
    (tmp_path / "test_x.py").write_text("def test_b(): pass\n")
    assert not_written(ids, tmp_path) == {*ids}
    (tmp_path / "test_x.py").write_text("def test_a(case): pass\n")
    assert not_written(ids, tmp_path) == set()
    assert not_collected(ids, ["test_x.py::test_a[case2-a | b]"]) == {*ids}
    assert not_collected(ids, ["test_x.py::test_a[case1-a | b]", "test_y.py::test_a"]) == set()
    assert not_collected(ids, ["test_y.py::test_a"]) == set()
