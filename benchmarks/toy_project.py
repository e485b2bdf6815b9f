"""The toy project of the tests as a user has it: committed in a repository of its own, with a state folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.process import Usage, run
from trainworthy.resources.settings import PRODUCT

# The run config that declares the first model.
FIRST = '{"resources": {"intent": {"config": {"first_model": true}}}}'


def new_toy(folder: Path) -> dict[str, str]:
    """The project in <folder>/project, its state in <folder>/state; gives the environment that names both."""
    root = folder / "project"
    shutil.copytree(PRODUCT / "tests" / "toy", root, ignore=shutil.ignore_patterns("__pycache__", "toy_rows"))
    committed(root)
    (folder / "first.yaml").write_text(FIRST)
    return {"TRAINWORTHY_VAR": str(folder / "state"), "TRAINWORTHY_USE_CASES": str(root / "use_cases")}


def job_command(job: str, *arguments: str) -> list[str]:
    """The bare command that runs a job to its end."""
    execute = ["dagster", "job", "execute", "-m", "trainworthy.pipeline.definitions", "-j", job]
    return [sys.executable, "-m", *execute, *arguments]


def run_job(job: str, *arguments: str, **environment: str) -> Usage:
    """Run a job in a fresh process; it must end well."""
    return run(job_command(job, *arguments), {**os.environ, "PYTHONPATH": str(PRODUCT / "src"), **environment}, PRODUCT)


def committed(root: Path) -> Path:
    """The folder as a git repository whose one commit holds all of it."""
    _git(root, "init", "--quiet")
    commit(root)
    return root


def commit(root: Path) -> None:
    """Commit all that lies in `root`."""
    _git(root, "add", "--all")
    _git(root, "-c", "user.name=Benchmark", "-c", "user.email=bench@example.org", "commit", "--quiet", "-m", "all")


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)
