"""What was written before there was trainworthy imports `lifecycle`: it is given the same modules, and each once."""

import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOTH = """
import os, sys
{first}
from lifecycle.errors import UseCaseError
from lifecycle.storage import records
import lifecycle.storage.records as by_path
import trainworthy.lifecycle.errors, trainworthy.lifecycle.storage.records as now
assert UseCaseError is trainworthy.lifecycle.errors.UseCaseError
assert records is by_path is now, (records, by_path, now)
files = [getattr(module, "__file__", None) or "" for module in set(sys.modules.values())]
ours = [os.path.realpath(file) for file in files if "/lifecycle/" in file]
assert len(ours) == len(set(ours)) > 2, ours
assert now.__name__ == now.__spec__.name == "trainworthy.lifecycle.storage.records"
"""


def run(code: str, folder: Path, *more: Path) -> None:
    path = os.pathsep.join(map(str, (*more, ROOT / "src")))
    subprocess.run([sys.executable, "-c", code], cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True)


def test_earlier_name_gives_the_same_modules_in_a_use_case_once_trainworthy_is_there(tmp_path):
    (tmp_path / "lifecycle").mkdir()  # a folder that is no package stands in nobody's way
    run(BOTH.format(first="import trainworthy"), tmp_path)


def test_earlier_name_gives_the_same_modules_from_the_checkout_itself():
    run(BOTH.format(first=""), ROOT)


def test_package_of_that_name_of_somebody_else_comes_first(tmp_path):
    (tmp_path / "lifecycle").mkdir()
    (tmp_path / "lifecycle" / "__init__.py").touch()
    (tmp_path / "lifecycle" / "errors.py").write_text("THEIRS = True")
    code = (
        "import trainworthy.lifecycle.errors as ours, lifecycle.errors as other; assert other.THEIRS; ours.UseCaseError"
    )
    run(code, tmp_path)


def test_earlier_command_is_refused_with_the_one_that_runs(monkeypatch):
    for name in ("lifecycle", "lifecycle.worker"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r"fix: python -m trainworthy\.lifecycle\.worker"):
        runpy.run_module("lifecycle.worker")
    sys.modules.pop("lifecycle", None)


@pytest.mark.parametrize("name", ["expectations", "resources", "assets", "pipeline"])
def test_folder_of_a_package_is_refused_with_the_name_to_import(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    with pytest.raises(ImportError, match=rf"{name} is trainworthy\.{name} now"):
        importlib.import_module(name)
