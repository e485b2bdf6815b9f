"""Predictions that hold values of sensitive columns row by row: what was written before they were coded, or by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.evaluation.slices import coded_groups, is_coded, slice_column
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import Settings, use_case_folders

_SHOWN = 3
# Where workers write predictions: of the candidate, of the champion, and of the model as it was registered.
_FOLDERS = ("evaluation", "champion", "deployment")
_GROUP = "group"


def sensitive(settings: Settings) -> Iterator[CheckResult]:
    """No file of predictions holds a value of a column that a contract calls sensitive."""
    exposed = [(path, columns) for path, columns in _in_the_clear(settings)]
    shown = "; ".join(f"{', '.join(columns.values())} in {path}" for path, columns in exposed[:_SHOWN])
    yield holds(
        "sensitive", not exposed,
        evidence=f"{len(exposed)} files hold values of sensitive columns row by row: {shown}" if exposed
        else "no file of predictions holds values of a sensitive column",
        fix="trainworthy doctor --fix takes them out; the next run evaluates these models again",
    )  # fmt: skip


def repair_sensitive(settings: Settings) -> Iterator[str]:
    """Take the values out of the files. Their hashes change, so that no evaluation of them is reused.

    Groups become numbers, since intervals need them; slices are left out, until the model is evaluated again.
    """
    import pandas as pd

    for path, columns in _in_the_clear(settings):
        rows, temporary = pd.read_parquet(path), path.with_name(f"{path.name}.repaired")
        if _GROUP in columns:
            rows = with_columns(rows, {_GROUP: coded_groups(rows[_GROUP])})
        rows.drop(columns=[name for name in columns if name != _GROUP]).to_parquet(temporary, index=False)
        temporary.replace(path)
        yield f"{', '.join(columns.values())} taken out of {path}"


def _in_the_clear(settings: Settings) -> Iterator[tuple[Path, dict[str, str]]]:
    """Files of predictions, and their columns with values of a sensitive one, which is named."""
    state = StateFolder(settings.var)
    for folder in use_case_folders(settings):
        hidden = _hidden(folder)
        files = (path for name in _FOLDERS for path in sorted(state.folder(name, folder.name).rglob("*.parquet")))
        for path in files if hidden else ():
            if clear := _clear_columns(path, hidden):
                yield path, clear


def _hidden(folder: Path) -> dict[str, str]:
    """Columns of predictions that may hold no values, by the sensitive column that they are made of.

    None of a contract or a use case that can't be read, which its own check tells.
    """
    try:
        names = load_contract(folder / "contract.yaml").sensitive_columns
    except TrainworthyError:
        return {}
    slices = {slice_column(name): name for name in names}
    try:
        group = load_use_case(folder).spec.split.resample_by
    except TrainworthyError:
        return slices
    return slices | ({_GROUP: group} if group in names else {})


def _clear_columns(path: Path, hidden: Mapping[str, str]) -> dict[str, str]:
    """Of the columns that may hold no values, those that the file holds uncoded."""
    import pandas as pd
    import pyarrow.parquet as pq

    there = [name for name in hidden if name in pq.read_schema(path).names]
    rows = pd.read_parquet(path, columns=there)
    return {name: hidden[name] for name in there if not is_coded(rows[name])}
