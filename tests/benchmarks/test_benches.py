"""Every benchmark can be found, goes its whole way on tiny data, and refuses a measure that measured nothing."""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import result
from benchmarks.process import peak_beyond
from benchmarks.toy_project import commit, committed

ROOT = Path(__file__).parents[2]
# Enough to tell from what an interpreter takes for itself.
TAKEN = 50_000_000


def calls(name: str, tree: ast.AST) -> list[ast.Call]:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in found if isinstance(call.func, ast.Name) and call.func.id == name]


def test_makefile_names_every_benchmark():
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("bench:")]
    assert re.findall(r"NAME=([a-z_|]+)", line) == ["|".join(result.names())]


@pytest.mark.parametrize("name", result.names())
def test_benchmark_can_be_imported_and_has_an_entry(name):
    """What it takes from the product is there, by name; that it fits is the type checker's, in `make check`."""
    assert callable(importlib.import_module(f"benchmarks.{name}").main)


@pytest.mark.parametrize("name", result.names())
def test_benchmark_takes_the_shared_arguments_and_says_in_its_line_that_it_was_short(name):
    """Read as text: most of them import torch."""
    tree = ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text())
    assert len(calls("arguments", tree)) == len(calls("begin", tree)) == 1
    lines = calls("finish", tree)
    assert lines
    assert all("short" in {keyword.arg for keyword in call.keywords} for call in lines)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_finish_measure_that_measured_nothing_is_refused_by_name(capsys, value):
    with pytest.raises(ValueError, match=r"peak_mb.*correct the measurement"):
        result.finish("b", {"seconds": 1.0, "peak_mb": value}, {"peak_mb": 1.0})
    assert capsys.readouterr().out == ""


def test_finish_count_of_zero_is_an_answer_and_a_short_run_meets_nothing(capsys):
    result.finish("b", {"alarms": 0, "seconds": 2e-7}, {"alarms": 0}, zero_allowed=["alarms"])
    result.finish("b", {"alarms": 0}, {"alarms": 0}, zero_allowed=["alarms"], short=True)
    whole, short = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (whole["met"], whole["short"], whole["figures"]) == (True, False, {"alarms": 0.0, "seconds": 2e-7})
    assert (short["met"], short["short"]) == (None, True)
    assert whole["commit"] == result.commit()


def test_finish_target_that_was_not_measured_is_missed(capsys):
    result.finish("b", {"seconds": 1.0}, {"seconds": 2.0, "bytes": 5.0})
    assert json.loads(capsys.readouterr().out)["met"] is False


def test_commit_is_the_checkouts_own_and_says_where_files_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(result, "FOLDER", tmp_path)
    read = result.commit.__wrapped__
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert read() == "unknown"
    (tmp_path / "file").write_text("1")
    committed(tmp_path)
    head = read()
    assert re.fullmatch("[0-9a-f]{7,}", head)
    (tmp_path / "file").write_text("2")
    assert read() == f"{head}+changes"
    commit(tmp_path)
    assert read() != head


def test_peak_of_a_process_is_its_own_and_not_that_of_a_larger_one_that_started_it():
    """With ru_maxrss, which a process takes over from its parent, the child's peak was 0 bytes."""
    larger = b"x" * (4 * TAKEN)
    words = f"from benchmarks.process import peak_beyond; print(peak_beyond(lambda: b'x' * {TAKEN}))"
    done = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert TAKEN <= int(done.stdout) + 2**20 < len(larger)


def test_peak_beyond_work_that_takes_nothing_is_refused():
    with pytest.raises(ValueError, match="no peak was measured"):
        peak_beyond(lambda: None)


def test_every_figure_of_the_docs_names_the_commit_that_it_was_measured_on():
    commit_hash = re.compile("`[0-9a-f]{7}`")
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    _, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    # One has a commit in each row, the other no figure.
    sections = [text for text in sections if not text.startswith(("All figures in one table", "What never ran"))]
    assert sections
    assert [text.splitlines()[0] for text in sections if not re.search(r"^Commits?: .*`", text, re.MULTILINE)] == []
    table = page.partition("## All figures in one table")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert rows
    assert [row for row in rows if not commit_hash.search(row.split("|")[-2])] == []


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout as it is now, committed elsewhere: a verdict asks for committed code, and pictures are written."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return committed(folder)


@pytest.mark.slow
@pytest.mark.bench
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", result.names())
def test_benchmark_short_goes_its_whole_way(checkout, name):
    """All share a state folder, so that the flights are built once."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DAGSTER_", "MLFLOW_"))}
    environment = kept | {
        "PYTHONPATH": str(checkout / "src"), "TRAINWORTHY_VAR": str(checkout / "var"), "OMP_NUM_THREADS": "1",
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    environment.pop("TRAINWORTHY_USE_CASES", None)
    command = [sys.executable, "-m", f"benchmarks.{name}", "--short"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert result.SHORT in done.stdout
    line = json.loads(done.stdout.splitlines()[-1])
    assert line.keys() == {"benchmark", "commit", "short", "figures", "targets", "met"}
    assert line["benchmark"].startswith(name)
    assert re.fullmatch("[0-9a-f]{7,}", line["commit"]), "a benchmark changed its own checkout"
    assert (line["short"], line["met"]) == (True, None)
    assert line["figures"]
    assert all(math.isfinite(value) for value in line["figures"].values())
