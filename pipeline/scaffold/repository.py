"""The files of a team's own repository: what `trainworthy init` writes beside what is there.

`trainworthy new` adds use cases to it.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.resources.settings import PRODUCT, refuse_own_name


def _copied(name: str) -> str:
    return (PRODUCT / name).read_text(encoding="utf-8")


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


# Each file by its place in the project. The folder of use cases makes it one, and git keeps no empty folder.
FILES: dict[str, Callable[[], str]] = {
    "definitions.py": lambda: rendered("project_definitions.py.j2"),
    "workspace.yaml": lambda: rendered("project_workspace.yaml.j2"),
    "dagster.yaml": lambda: _copied("dagster.yaml"),
    "prices.yaml": lambda: _copied("prices.yaml"),
    ".gitignore": lambda: rendered("project_gitignore.j2"),
    ".dvc/config": lambda: rendered("project_dvc_config.j2"),
    ".github/workflows/trainworthy.yaml": lambda: rendered("project_workflow.yaml.j2", python=_python()),
    "use_cases/.gitkeep": lambda: "",
}


@dataclass(frozen=True)
class Repository:
    """What was written and what was kept, as paths in `folder`; and the lines that a kept .gitignore lacks.

    `above` is the root of the git repository where the project lies below it: GitHub reads workflows there alone.
    """

    folder: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]
    unignored: tuple[str, ...]
    above: Path | None


def make_repository(folder: Path) -> Repository:
    """Write the files that the folder lacks; it is made if it is missing. All of them, or none.

    Raises SettingsError if the folder cannot be written, is in no git repository, or has a package called trainworthy.
    """
    folder = folder.resolve()
    with contextlib.ExitStack() as undo:
        _make_folders(folder, undo)
        _refuse_unfit(folder)
        kept = tuple(name for name in FILES if (folder / name).exists() or (folder / name).is_symlink())
        written = tuple(name for name in FILES if name not in kept)
        for name in written:
            _make_folders((folder / name).parent, undo)
            undo.callback((folder / name).unlink, missing_ok=True)
            try:
                write_atomic(folder / name, FILES[name]().encode())
            except OSError as error:
                raise _unwritable(folder / name, error) from None
        unignored = _unignored(folder) if ".gitignore" in kept else ()
        undo.pop_all()
    return Repository(folder, written, kept, unignored, _above(folder))


def _make_folders(folder: Path, undo: contextlib.ExitStack) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir()
            undo.callback(shutil.rmtree, path, ignore_errors=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(path: Path, error: OSError) -> SettingsError:
    fix = "make it writable, or name another folder: trainworthy init FOLDER"
    return SettingsError(f"the project cannot be written: {error.strerror}", value=str(path), fix=fix)


def _refuse_unfit(folder: Path) -> None:
    """Raises SettingsError if Python would import a package of the project as Trainworthy, or git is not there."""
    refuse_own_name(folder)
    try:
        done = subprocess.run(["git", "-C", str(folder), "rev-parse"], capture_output=True, check=False)
    except FileNotFoundError:
        raise SettingsError("git is not installed", value=str(folder), fix="install git, then run it again") from None
    if b"safe.directory" in done.stderr:
        # Of a folder of another user, as a mounted volume is.
        fix = f"git config --global --add safe.directory {shlex.quote(str(folder))}, then run it again"
        raise SettingsError("git does not trust the owner of the folder", value=str(folder), fix=fix)
    if done.returncode != 0:
        fix = f"git init {shlex.quote(str(folder))}, then run it again: a verdict promotes only what a commit holds"
        raise SettingsError("the project lies in no git repository", value=str(folder), fix=fix)


def _above(folder: Path) -> Path | None:
    command = ["git", "-C", str(folder), "rev-parse", "--show-toplevel"]
    root = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    return None if root.resolve() == folder else root


def _unignored(folder: Path) -> tuple[str, ...]:
    """Lines of our .gitignore that the project's own lacks."""
    try:
        there = (folder / ".gitignore").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fix = "mend or remove it, then run it again"
        raise SettingsError(f".gitignore cannot be read: {error}", value=str(folder / ".gitignore"), fix=fix) from None
    lines = [line for line in FILES[".gitignore"]().splitlines() if not line.startswith("#")]
    return tuple(line for line in lines if line not in there)
