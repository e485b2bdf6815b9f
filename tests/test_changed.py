"""Which tests a change needs, on a made-up tree."""

import subprocess
import time

import changed
import pytest

TREE = {
    "lifecycle/__init__.py": "",
    "lifecycle/names.py": "LONG = 1",
    "lifecycle/lazy.py": "def late():\n    from trainworthy.lifecycle.names import LONG\n    return LONG",
    "lifecycle/typed.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trainworthy.lifecycle.names import LONG"
    ),
    "lifecycle/worker.py": "from trainworthy.lifecycle import lazy",
    "lifecycle/other.py": "",
    "lifecycle/page.html": "",
    "lifecycle/render.py": "PAGE = 'page.html'",
    "lifecycle/broken.py": "def (",
    "pipeline/start.py": "COMMAND = ['python', '-m', 'trainworthy.lifecycle.worker']",
    "use_cases/flights/use_case.yaml": "",
    "use_cases/shop/use_case.yaml": "",
    "docs/how-to/start.md": "",
    "tests/lifecycle/conftest.py": "import helper",
    "tests/lifecycle/helper.py": "import trainworthy.lifecycle.names",
    "tests/lifecycle/test_by_conftest.py": "",
    "tests/test_lazy.py": "from trainworthy.lifecycle.lazy import late",
    "tests/test_typed.py": "import trainworthy.lifecycle.typed",
    "tests/test_patched.py": "def test(monkeypatch):\n    monkeypatch.setattr('trainworthy.lifecycle.names.LONG', 2)",
    "tests/test_other.py": "from trainworthy.lifecycle.other import nothing",
    "tests/test_page.py": "from trainworthy.lifecycle.render import PAGE",
    "tests/test_flights.py": "FOLDER = 'use_cases/flights'",
    "tests/test_docs.py": "PAGE = 'docs/how-to/start.md'",
    "tests/test_gone.py": "",
    "tests/pipeline/test_whole_run.py": "from trainworthy.pipeline.start import COMMAND",
}


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A repository with a branch beside main, which has one commit; read only."""
    root = tmp_path_factory.mktemp("tree")
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=main")
    git(root, "checkout", "--quiet", "-b", "branch")
    (root / "lifecycle/other.py").write_text("nothing = 0")
    git(root, "commit", "--quiet", "--all", "--message=branch")
    git(root, "rm", "--quiet", "tests/test_gone.py")
    (root / "lifecycle/names.py").write_text("LONG = 3")
    (root / "lifecycle/new.py").write_text("")
    return root


@pytest.mark.parametrize(
    ("file", "needed"),
    [
        # Through a string of a process that is left to make test, but not through it alone.
        ("lifecycle/names.py", {"lazy": 2, "typed": 2, "patched": 1, "by_conftest": 3}),
        ("lifecycle/worker.py", {}),
        ("pipeline/start.py", {"whole_run": 1}),
        ("lifecycle/other.py", {"other": 1}),
        ("lifecycle/removed.py", {}),
        ("docs/how-to/start.md", {"docs": 1}),
        ("lifecycle/page.html", {"page": 1}),
        ("use_cases/flights/use_case.yaml", {"flights": 1}),
        ("use_cases/shop/use_case.yaml", {}),
        ("tests/lifecycle/helper.py", {"by_conftest": 2}),
        ("tests/test_lazy.py", {"lazy": 0}),
    ],
)
def test_tests_that_need_a_file_are_found_with_the_imports_in_between(tree, file, needed):
    found = changed.tests_of(tree, [file])
    assert {path.rpartition("/test_")[2].removesuffix(".py"): distance for path, distance in found.items()} == needed
    assert list(found.values()) == sorted(found.values())


def test_changes_are_of_the_branch_the_working_tree_and_new_files(tree):
    found = changed.changed_files(tree)
    assert found == ("lifecycle/names.py", "lifecycle/new.py", "lifecycle/other.py", "tests/test_gone.py")


def test_test_that_begins_in_time_runs_and_a_later_one_is_skipped(monkeypatch, request):
    monkeypatch.delenv(changed.UNTIL, raising=False)
    changed.pytest_runtest_setup(request.node)
    monkeypatch.setenv(changed.UNTIL, str(time.time() + 3600))
    changed.pytest_runtest_setup(request.node)
    monkeypatch.setenv(changed.UNTIL, "0")
    with pytest.raises(pytest.skip.Exception, match="make test runs it"):
        changed.pytest_runtest_setup(request.node)
