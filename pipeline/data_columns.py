"""The columns of a published dataset version: contract.yaml is held against them, so that no typo is offered as right.

Only the names are read, and only where the version's files lie here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.errors import DatasetError, Problem, did_you_mean
from trainworthy.lifecycle.files.materialised import files_folder
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.settings import Settings


def columns_of_data(use_case: UseCase, settings: Settings) -> tuple[str, ...]:
    """The columns of the version that use_case.yaml names; empty where its files are not here, or unreadable."""
    declared = use_case.spec.dataset
    try:
        version = published_version(use_case.project, declared.name, declared.version)
    except DatasetError:
        return ()
    folder = files_folder(settings.var / "datasets" / declared.name / version.content_hash)
    first = min(folder.glob("*.parquet"), default=None) if folder.is_dir() else None
    return _names(first) if first is not None else ()


def _names(path: Path) -> tuple[str, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(path).names)
    except (OSError, pa.ArrowInvalid):
        return ()


def absent_columns(contract: Contract | None, columns: Sequence[str]) -> list[str]:
    """The contract's columns that the data lack; none where either is not known."""
    named = [] if contract is None or not columns else [column.name for column in contract.columns]
    return [name for name in named if name not in columns]


def with_columns_of_data(
    problems: Sequence[Problem], contract: Contract | None, columns: Sequence[str]
) -> list[Problem]:
    """The problems, and before them the contract's columns that the data lack, with the names that these have.

    Then the contract is what is wrong, and not who names a column that is in the data.
    """
    absent = absent_columns(contract, columns)
    if contract is None or not absent:
        return list(problems)
    named = {column.name for column in contract.columns}
    free = [name for name in columns if name not in named]
    problem = "the dataset has no such column"
    first = [Problem("contract.yaml: columns", problem, did_you_mean(name, free), name) for name in absent]
    return [*first, *(one for one in problems if one.value not in free)]
