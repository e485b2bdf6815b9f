"""Published dataset versions as text: rows, dates, who trained on them; and publishing one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from trainworthy.lifecycle.errors import DatasetError, UseCaseError
from trainworthy.lifecycle.files.contents import Times, read_contents, times_of
from trainworthy.lifecycle.files.materialised import files_folder
from trainworthy.lifecycle.files.versions import PublishedVersion, read_versions
from trainworthy.lifecycle.promotion.trained import Trained, trained_on
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.pipeline.show import verdict_log
from trainworthy.resources.settings import claim_state, projects, read_settings, use_case_folders
from trainworthy.resources.shared_state import records_of

# Of each version; the records hold the others.
SHOWN_TRAININGS = 5


def datasets_text() -> str:
    """Every published version: rows, dates, content hash, what it was made from, and the trainings on it."""
    use_cases = loadable_use_cases()
    trainings = list(_trainings(use_cases))
    lines: list[str] = []
    for project in projects(read_settings()):
        versions = [(name, *item) for name, revisions in read_versions(project).items() for item in revisions.items()]
        width = max((len(f"{name}@{revision}") for name, revision, _ in versions), default=0)
        for name, revision, version in versions:
            dates = _dates(project, name, version, [use_case for use_case in use_cases if use_case.project == project])
            lines.append(
                f"{f'{name}@{revision}':<{width}} {version.rows:>12,} rows  {dates:<24}  {version.content_hash[:12]}  "
                f"{_origin(version)}"
            )
            lines += [f"    {line}" for line in _training_lines(f"{name}@{revision}", trainings)]
    return "\n".join(lines) or "no dataset version is published yet: trainworthy datasets publish --help"


def loadable_use_cases() -> list[UseCase]:
    """The use cases that can be loaded; `trainworthy check` tells what is wrong with another."""
    use_cases = []
    for folder in use_case_folders(read_settings()):
        try:
            use_cases.append(load_use_case(folder))
        except UseCaseError:
            continue
    return use_cases


def _trainings(use_cases: Sequence[UseCase]) -> Iterator[Trained]:
    store = records_of(read_settings())
    for use_case in use_cases:
        yield from trained_on(use_case.name, verdict_log(use_case.name), store)


def _training_lines(dataset: str, trainings: Sequence[Trained]) -> list[str]:
    matches = [training for training in trainings if training.dataset == dataset]
    lines = [f"{training.use_case}: {training.outcome}; run {training.run_id[:8]}" for training in matches]
    more = len(lines) - SHOWN_TRAININGS
    return lines[:SHOWN_TRAININGS] + ([f"and {more} more"] if more > 0 else [])


def _origin(version: PublishedVersion) -> str:
    made_from = version.source or ", ".join(f"{key}={value}" for key, value in version.parameters.items())
    return f"{made_from}; {version.backfill.told}" if version.backfill else made_from


def _dates(project: Path, name: str, version: PublishedVersion, use_cases: Sequence[UseCase]) -> str:
    """First and last day of the use case's time column; blank where nobody declared one or nothing here tells."""
    times = _times(project, name, version)
    own = [use_case.spec for use_case in use_cases if use_case.spec.dataset.name == name]
    for column in (column for spec in own for column in (spec.split.time_column, spec.prediction_time) if column):
        if column in times:
            first, last = times[column]
            return f"{first[:10]} to {last[:10]}"
    return ""


def _times(project: Path, name: str, version: PublishedVersion) -> Times:
    """As published; of a version that was published without, as the files here have them."""
    recorded = read_contents(project).get(version.content_hash)
    if recorded is not None:
        return recorded.times
    folder = files_folder(StateFolder(read_settings().var).folder("datasets", name, version.content_hash))
    try:
        return times_of(folder) if folder.is_dir() else {}
    except (DatasetError, OSError, ValueError):
        # Damaged files; fetching them says so and fixes them.
        return {}


def publish_dataset(
    name: str, revision: str, parameters: Sequence[str], source: str | None = None, backfill: str = ""
) -> str:
    """Publish a version of a project's dataset; NAME=VALUE parameters are read as YAML scalars.

    Without parameters and `source`, it is imported from where data/<name>.dvc says.
    """
    from trainworthy.resources.dvc import DatasetStore
    from trainworthy.resources.dvc_origin import declared_source

    pairs = [parameter.partition("=") for parameter in parameters]
    wrong = [parameter for parameter, (_, sign, _) in zip(parameters, pairs, strict=True) if not sign]
    if wrong:
        raise DatasetError("parameters are written NAME=VALUE", value=wrong, fix="for example through_month=9")
    if source and parameters:
        fix = "give the parameters of a stage, or the address to import from"
        raise DatasetError("a version is built or imported, not both", value=[source, *parameters], fix=fix)
    values = {key: yaml.safe_load(value) for key, _, value in pairs}
    parts = values.get("parts", 1)
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
        fix = "write how many files the dataset is built from, for example parts=2"
        raise DatasetError("parts is no whole number from 1 on", value=parts, fix=fix)
    project = _project_of(name)
    state = claim_state(read_settings())
    if not values:
        source = source or declared_source(project, name)
    version = DatasetStore(state.root).publish(project, name, revision, values, source=source, backfill=backfill)
    contents = f"{version.rows:,} rows, content hash {version.content_hash}"
    return f"published {name}@{revision}: {contents}; now commit data/versions.yaml and data/contents.jsonl"


def _project_of(dataset: str) -> Path:
    """The project that has the dataset; with one project that one, so that it tells what is wrong."""
    known = projects(read_settings())
    owning = [project for project in known if _owns(project, dataset)]
    if len(known) == 1 or len(owning) == 1:
        return (owning or known)[0]
    problem = "no project has this dataset" if not owning else "two projects have a dataset of this name"
    folders = [str(project) for project in owning or known]
    raise DatasetError(
        f"{problem}: {', '.join(folders)}", value=dataset, fix="name one folder in TRAINWORTHY_USE_CASES"
    )


def _owns(project: Path, dataset: str) -> bool:
    path = project / "dvc.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
    stages = values.get("stages") or {} if isinstance(values, dict) else {}
    return dataset in stages or (project / "data" / f"{dataset}.dvc").is_file() or dataset in read_versions(project)
