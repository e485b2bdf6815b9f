"""Where a version's files come from: a stage of dvc.yaml builds them, or they are imported from an address.

`dvc import-url` fetches a folder or file on a disk, in object storage or behind HTTP, in a workspace of its own. What
came is held against the published content hash by the caller, so an address whose files changed since is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.versions import Parameter, PublishedVersion
from trainworthy.resources.dvc_objects import LIST_OF_FILES
from trainworthy.resources.dvc_stage import build_stage, declare_workspace, run_dvc
from trainworthy.resources.dvc_work import say


def declared_entry(
    name: str,
    parameters: Mapping[str, Parameter],
    source: str | None,
    backfill: str,
    published: Mapping[str, PublishedVersion],
) -> dict[str, Any]:
    """What the publisher decides of an entry."""
    declared: dict[str, Any] = {"parameters": dict(parameters)} if source is None else {"source": source}
    if not backfill:
        return declared
    if not published:
        fix = "leave --backfill out"
        raise DatasetError(f"{name} has no version yet whose rows could be changed", value=backfill, fix=fix)
    return {**declared, "backfill": {"of": list(published)[-1], "reason": backfill}}


def made(project: Path, name: str, parameters: Mapping[str, Parameter], source: str | None, work: Path) -> Path:
    """The files as their stage builds them, or as they lie at their source."""
    return build_stage(project, name, parameters, work) if source is None else import_files(name, source, work)


def made_again(project: Path, name: str, label: str, version: PublishedVersion, lost: list[str], work: Path) -> Path:
    """Built or imported anew, since DVC does not hold these files; the error of a failure names them."""
    doing = "building" if version.source is None else "importing"
    if lost == [LIST_OF_FILES]:
        say(f"{doing} the files of {label}, which are not stored here yet ...")
    else:
        say(f"{doing} {label}: DVC's cache and remote do not have {_few(lost)} ..." if lost else f"{doing} {label} ...")
    try:
        return made(project, name, version.parameters, version.source, work)
    except DatasetError as error:
        problem = f"{label} is not to be had: DVC's cache and remote lack {_few(lost)}, and {error.problem}"
        fix = f"{error.fix}; or restore the objects from a backup of the remote"
        raise DatasetError(problem, value=error.value, fix=fix) from error


def _few(names: list[str]) -> str:
    """Some of the names, or that all are lacking."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "sound files"


def import_files(name: str, source: str, work: Path) -> Path:
    """The files at `source` in a new folder below `work`. Raises DatasetError with DVC's last lines."""
    workspace = work / "workspace"
    declare_workspace(workspace)
    folder = workspace / "data" / name
    address = source.removeprefix("file://").rstrip("/")
    one_file = address.endswith(".parquet")
    folder.parent.mkdir(parents=True)
    if one_file:
        folder.mkdir()
    target = folder / address.rpartition("/")[2] if one_file else folder
    code, tail = run_dvc(["import-url", "--", address, str(target.relative_to(workspace))], workspace, work)
    if code != 0:
        missing = "is supported, but requires" in tail
        fix = (
            "install the extra of that storage, for S3: pip install -e '.[s3]'"
            if missing
            else "look at the address and the rights there; credentials come from the environment, as AWS_PROFILE"
        )
        raise DatasetError(f"DVC could not import {name} (exit code {code}):\n    {tail}", value=source, fix=fix)
    # What DVC notes of the import, beside the file.
    target.with_name(f"{target.name}.dvc").unlink()
    return folder


def declared_source(project: Path, name: str) -> str | None:
    """The address that data/<name>.dvc imports from (`dvc import-url` writes that file); None if there is no file.

    Raises DatasetError if the file names no address.
    """
    path = project / "data" / f"{name}.dvc"
    if not path.is_file():
        return None
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return str(values["deps"][0]["path"])
    except (yaml.YAMLError, KeyError, IndexError, TypeError):
        fix = f"write it with: dvc import-url --no-download URL data/{name}; or name the address: --from URL"
        raise DatasetError("a .dvc file names no address to import from", value=f"data/{name}.dvc", fix=fix) from None
