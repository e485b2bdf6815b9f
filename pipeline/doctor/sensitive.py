"""Predictions that hold values of sensitive columns row by row: what was written before they were coded, or by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lifecycle.checks import CheckResult, holds
from lifecycle.contract.model import load_contract
from lifecycle.errors import TrainworthyError
from lifecycle.evaluation.slices import is_coded, slice_column
from lifecycle.storage.state import StateFolder
from resources.settings import Settings, use_case_folders

_SHOWN = 3


def sensitive(settings: Settings) -> Iterator[CheckResult]:
    """No file of predictions holds a value of a column that a contract calls sensitive."""
    found = [(path, columns) for path, columns in _in_the_clear(settings)]
    shown = "; ".join(f"{', '.join(columns)} in {path}" for path, columns in found[:_SHOWN])
    yield holds(
        "sensitive", not found,
        evidence=f"{len(found)} files hold values of sensitive columns row by row: {shown}" if found
        else "no file of predictions holds values of a sensitive column",
        fix="trainworthy doctor --mend takes them out; the next run evaluates these models again",
    )  # fmt: skip


def mend_sensitive(settings: Settings) -> Iterator[str]:
    """Take the columns out of the files. Their hashes change, so that no evaluation of them is reused."""
    import pandas as pd

    for path, columns in _in_the_clear(settings):
        temporary = path.with_name(f"{path.name}.mended")
        pd.read_parquet(path).drop(columns=list(map(slice_column, columns))).to_parquet(temporary, index=False)
        temporary.replace(path)
        yield f"{', '.join(columns)} taken out of {path}"


def _in_the_clear(settings: Settings) -> Iterator[tuple[Path, list[str]]]:
    """Files of predictions, and the sensitive columns whose values they hold."""
    state = StateFolder(settings.var)
    for folder in use_case_folders(settings):
        names = _sensitive_columns(folder)
        for path in sorted(state.folder("evaluation", folder.name).rglob("*.parquet")) if names else ():
            if clear := _clear_columns(path, names):
                yield path, clear


def _sensitive_columns(folder: Path) -> tuple[str, ...]:
    """Of a use case's contract; none of one that can't be read, which its own check tells."""
    try:
        return load_contract(folder / "contract.yaml").sensitive_columns
    except TrainworthyError:
        return ()


def _clear_columns(path: Path, names: tuple[str, ...]) -> list[str]:
    """Of the sensitive columns, those whose values the file holds uncoded."""
    import pandas as pd
    import pyarrow.parquet as pq

    there = [name for name in names if slice_column(name) in pq.read_schema(path).names]
    rows = pd.read_parquet(path, columns=list(map(slice_column, there)))
    return [name for name in there if not is_coded(rows[slice_column(name)])]
