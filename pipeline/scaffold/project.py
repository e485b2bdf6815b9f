"""The files of a new use case: laid out in a project of their own first, then copied into the user's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from lifecycle.contract.draft import contract_text, draft_contract
from lifecycle.contract.model import Label
from lifecycle.cost.prices import load_prices
from lifecycle.storage.state import write_atomic
from pipeline.scaffold.found import PARAMETERS, Found
from pipeline.scaffold.render import rendered
from pipeline.scaffold.request import Request
from pipeline.scaffold.stage_text import with_stage
from pipeline.schema import COMMITTED
from resources.settings import PROJECT, Settings

MOST_SLICES, MOST_SLICE_VALUES = 2, 12
CONTRACT_HEADING = """\
What every version of the dataset must hold. Drafted from the rows of v1; docs/how-to/contract.md explains it.
Where it says `review`: is the value really known when the model is asked? PT0S claims so, and nothing but you can tell.
A value that is known only later (PT1H: an hour later) is no input; give it the role `other`."""


def lay_out(request: Request, settings: Settings, found: Found, project: Path) -> Path:
    """Write a whole project with this one use case to `project`; returns the use case's folder."""
    use_cases = settings.use_cases[0].name
    folder = project / use_cases / request.name
    stage = rendered("stage.yaml.j2", name=request.name, folder=use_cases, source=request.source)
    files = {
        folder / "use_case.yaml": _use_case_text(request, settings, found),
        folder / "contract.yaml": _contract_text(request, found),
        folder / "dataset.py": found.dataset_text,
        folder / "model.py": _model_text(request, found),
        folder / "first_model.yaml": rendered("first_model.yaml.j2"),
        project / "data" / f"{request.name}.yaml": rendered("parameters.yaml.j2", name=request.name, **PARAMETERS),
        project / "dvc.yaml": with_stage(None, request.name, stage),
        project / "stage.yaml": stage,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def _contract_text(request: Request, found: Found) -> str:
    document = draft_contract(
        found.rows,
        name=request.name,
        purpose=f"What the model of {request.name} learns from.",
        columns=found.columns,
        key=found.key,
        label=Label(name=found.labels.column, version=1, column=found.labels.column),
    )
    return contract_text(document, found.columns, CONTRACT_HEADING)


def _use_case_text(request: Request, settings: Settings, found: Found) -> str:
    values = {name: found.rows[name].nunique() for name in found.inputs("text")}
    few = sorted((count, name) for name, count in values.items() if 1 < count <= MOST_SLICE_VALUES)
    return rendered(
        "use_case.yaml.j2",
        name=request.name,
        schema=_schema_path(settings.use_cases[0] / request.name),
        description=f"Will {found.labels.column} be {found.labels.positive}, asked at {found.time}?",
        owner=request.owner or f"team:{request.name}",
        time=found.time,
        target=found.labels.column,
        day=found.day,
        windows=found.windows,
        slices=[name for _, name in few[:MOST_SLICES]],
        sku=next(iter(load_prices(settings.prices).skus)),
    )


def _schema_path(folder: Path) -> str | None:
    """The schema for editors, relative to the use case; None where the use case lies outside of Trainworthy."""
    return os.path.relpath(COMMITTED, folder) if folder.is_relative_to(PROJECT) else None


def _model_text(request: Request, found: Found) -> str:
    return rendered(
        "model.py.j2",
        name=request.name,
        numbers=found.inputs("number", "integer", "boolean"),
        categories=found.inputs("text"),
        moments=found.inputs("time", "instant"),
    )


def install(request: Request, settings: Settings, made: Path, publish: Callable[[Path], None]) -> None:
    """Copy the files into the user's project, or leave it as it was.

    use_case.yaml comes last, since it makes a folder a use case; `publish` enters the dataset version before.
    """
    use_cases = settings.use_cases[0]
    project, folder, source = use_cases.parent, use_cases / request.name, made / use_cases.name / request.name
    dvc, versions = project / "dvc.yaml", project / "data" / "versions.yaml"
    before = {path: path.read_bytes() if path.is_file() else None for path in (dvc, versions)}
    stage = (made / "stage.yaml").read_text(encoding="utf-8")
    old = before[dvc]
    new_dvc = with_stage(None if old is None else old.decode(), request.name, stage)
    new = [folder, project / request.source, project / "data" / f"{request.name}.yaml"]
    new += [] if (project / "data").exists() else [project / "data"]
    try:
        folder.mkdir()
        shutil.copytree(made / request.source, project / request.source)
        for name in ("contract.yaml", "dataset.py", "model.py", "first_model.yaml"):
            shutil.copyfile(source / name, folder / name)
        shutil.copyfile(made / "data" / f"{request.name}.yaml", project / "data" / f"{request.name}.yaml")
        write_atomic(dvc, new_dvc.encode())
        publish(project)
        shutil.copyfile(source / "use_case.yaml", folder / "use_case.yaml")
    except BaseException:
        _undo(new, before)
        raise


def _undo(new: list[Path], before: dict[Path, bytes | None]) -> None:
    """Take away what is new and put back what was there."""
    for path, content in before.items():
        if content is None:
            path.unlink(missing_ok=True)
        else:
            write_atomic(path, content)
    for path in new:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
