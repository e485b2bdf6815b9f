"""Runs one DVC stage in a workspace of its own: only what the stage declares is there, nothing else is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trainworthy.lifecycle.errors import DatasetError, did_you_mean
from trainworthy.lifecycle.unique_keys import yaml_mistake

# No commit: the workspace has no cache worth keeping. Forced: DVC's run cache could hand out damaged objects.
COMMAND = ("repro", "--force", "--no-commit")
CONFIG = "[core]\n    analytics = false\n    check_update = false\n    no_scm = true\n"
ERROR_LINES = 15


def build_stage(project: Path, name: str, parameters: Mapping[str, Any], work: Path) -> Path:
    """Build the dataset `name` with `parameters` in `work`; the folder of its files.

    DVC runs as a process of its own, so that the stage's output ends in the error message, the stage's `python` is
    this one, and neither DVC nor the stage can touch this process. Raises DatasetError if the stage fails.
    """
    stage = _stage(project, name)
    workspace = work / "workspace"
    _lay_out(project, name, stage, parameters, workspace)
    code, tail = run_dvc([*COMMAND, name], workspace, work)
    if code != 0:
        raise DatasetError(
            f"DVC could not build {name} (exit code {code}):\n    {tail}",
            value=dict(parameters),
            fix=f"correct what the last lines say; the stage is `{name}` in dvc.yaml",
        )
    return workspace / "data" / name


def run_dvc(arguments: Sequence[str], workspace: Path, work: Path) -> tuple[int, str]:
    """Exit code and last lines of a DVC command in `workspace`; its own settings and site folder lie below `work`."""
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=workspace,
        env=_environment(work),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, "\n    ".join(done.stdout.strip().splitlines()[-ERROR_LINES:])


def declare_workspace(workspace: Path) -> None:
    """A DVC repository of its own in a new folder: no git, no cache worth keeping."""
    (workspace / ".dvc").mkdir(parents=True)
    (workspace / ".dvc" / "config").write_text(CONFIG, encoding="utf-8")


def check_parameters(project: Path, name: str, parameters: Mapping[str, Any]) -> None:
    """Raise DatasetError unless `parameters` has exactly the keys of data/<name>.yaml."""
    known = _read_yaml(project, f"data/{name}.yaml")
    for key in parameters:
        if key not in known:
            raise DatasetError(
                f"dataset {name} has no such parameter", value=key, fix=did_you_mean(key, [str(item) for item in known])
            )
    missing = sorted(str(key) for key in known.keys() - parameters.keys())
    if missing:
        raise DatasetError(f"parameters of dataset {name} are missing", value=missing, fix="give each one a value")


def _stage(project: Path, name: str) -> dict[str, Any]:
    """The stage that builds the dataset, checked as far as building it elsewhere depends on it."""
    stages = _read_yaml(project, "dvc.yaml").get("stages") or {}
    if name not in stages:
        raise DatasetError(
            "dvc.yaml has no stage of the dataset's name", value=name, fix=did_you_mean(name, map(str, stages))
        )
    stage = stages[name] or {}
    outs = [out if isinstance(out, str) else next(iter(out)) for out in stage.get("outs", [])]
    if outs != [f"data/{name}"] or "wdir" in stage:
        raise DatasetError(
            f"stage {name} of dvc.yaml must write one folder, data/{name}, from the project's root",
            value={"outs": outs, "wdir": stage.get("wdir")},
            fix=f"write `outs: [data/{name}]` and no wdir",
        )
    return stage


def _lay_out(project: Path, name: str, stage: dict[str, Any], parameters: Mapping[str, Any], workspace: Path) -> None:
    """The stage alone, its parameters, and copies of what it depends on.

    Copies, not links: Python follows a link, would find undeclared modules beside the original and leave its
    bytecode there.
    """
    declare_workspace(workspace)
    _write_yaml(workspace / "dvc.yaml", {"stages": {name: stage}})
    for path in _inputs(stage):
        if path == f"data/{name}.yaml":
            continue
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise DatasetError(
                f"stage {name} reads outside the project", value=path, fix="keep its deps in the project"
            )
        source, copy = project / path, workspace / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            shutil.copyfile(source, copy)
        else:
            raise DatasetError(f"stage {name} depends on a missing file", value=path, fix="restore it, or correct deps")
    _write_yaml(workspace / "data" / f"{name}.yaml", dict(parameters))


def _inputs(stage: dict[str, Any]) -> list[str]:
    """Files and folders that the stage names under deps, params and vars."""
    params = [key for item in stage.get("params", []) if isinstance(item, dict) for key in item]
    variables = [item.split(":")[0] for item in stage.get("vars", []) if isinstance(item, str)]
    return list(dict.fromkeys([*stage.get("deps", []), *params, *variables]))


def _environment(work: Path) -> dict[str, str]:
    """This process's environment, but: `python` is this one, a plain shell, no settings of the user's own DVC."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
    return inherited | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "SHELL": "/bin/sh",
        "DVC_NO_ANALYTICS": "1",
        "DVC_GLOBAL_CONFIG_DIR": str(work / "config"),
        "DVC_SYSTEM_CONFIG_DIR": str(work / "config"),
        "DVC_SITE_CACHE_DIR": str(work / "site"),
    }


def _read_yaml(project: Path, name: str) -> dict[str, Any]:
    text = ""
    try:
        text = (project / name).read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except FileNotFoundError as error:
        raise DatasetError("a file of the project is missing", value=name, fix=f"create {name}") from error
    except yaml.YAMLError as error:
        mistake = yaml_mistake(error, text)
        raise DatasetError(mistake.told(name), fix=mistake.fix) from error
    if not isinstance(values, dict):
        raise DatasetError(f"{name} must be a mapping of keys", value=values, fix="write `key: value` lines")
    return values


def _write_yaml(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
