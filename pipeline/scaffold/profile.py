"""What is found out about a file or a folder, as far as a use case needs it, and the rows that its dataset.py makes."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from trainworthy.lifecycle.contract.draft import ColumnDraft
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.tasks.free_text import is_free_text
from trainworthy.pipeline.scaffold.folder_files import FoundFiles
from trainworthy.pipeline.scaffold.source import Kind
from trainworthy.pipeline.scaffold.table_files import FileColumn, TableFiles
from trainworthy.pipeline.scaffold.target import FoundTarget
from trainworthy.pipeline.scaffold.windows import Windows

# Of the first version: one part.
PARAMETERS = {"parts": 1}


@dataclass(frozen=True)
class Plan:
    """What use_case.yaml says of a network: `per_batch` where its tensors are made batch by batch."""

    hyperparameters: dict[str, int | float]
    learning_rate: float = 0.003
    latency_ms: int = 50
    per_batch: bool = False


OF_TABLE = Plan({"width": 64, "embedding_dim": 4, "min_category_rows": 20, "dropout": 0.1})


# Filters of the first of three convolutions over a picture, beside other inputs.
OF_PICTURES = {"filters": 16}
# What a network of words has besides. Half of the words of a text at a time: of few rows it knows each text by heart.
OF_WORDS = {"word_dim": 16, "word_dropout": 0.5}


def plan_of_table(
    rows: pd.DataFrame, target: FoundTarget, *, has_texts: bool, has_pictures: bool = False, per_batch: bool = False
) -> Plan:
    """That of a table, `per_batch` where the tensors of its files would not fit into memory."""
    words, pictures = OF_WORDS if has_texts else {}, OF_PICTURES if has_pictures else {}
    plan = replace(OF_TABLE, hyperparameters={**OF_TABLE.hyperparameters, **words, **pictures}, per_batch=per_batch)
    return with_base_rate(plan, rows, target)


def with_base_rate(plan: Plan, rows: pd.DataFrame, target: FoundTarget) -> Plan:
    """Of an event with its share of the labelled rows, to two digits: where the network begins."""
    if target.label.type != "event":
        return plan
    share = float(with_label(rows, target.label)[target.label.name].mean())
    return replace(plan, hyperparameters={**plan.hyperparameters, "base_rate": float(f"{share:.2g}")})


def free_texts(rows: pd.DataFrame, columns: Collection[ColumnDraft]) -> list[str]:
    """Features of which the words are read, in the order of the columns."""
    return [
        column.name for column in columns
        if column.role == "feature" and column.file is None and is_free_text(rows[column.name])
    ]  # fmt: skip


@dataclass(frozen=True)
class UseCaseDraft:
    """`rows` are as dataset.py builds them; `day` names a column that it adds, None where the rows hold no times.

    `observations` is what a person should know of the file, a line each; `files` the folder, where rows are files,
    `table_files` the columns of a table that name files; `clock` the columns that dataset.py makes of the time.
    """

    kinds: dict[str, Kind]
    target: FoundTarget
    time: str | None
    day: str | None
    key: tuple[str, ...]
    dataset_text: str
    rows: pd.DataFrame
    columns: tuple[ColumnDraft, ...]
    windows: Windows
    observations: tuple[str, ...]
    plan: Plan = OF_TABLE
    files: FoundFiles | None = None
    table_files: TableFiles | None = None
    clock: tuple[str, ...] = ()

    @property
    def files_alone(self) -> FileColumn | None:
        """The column of files, where it is the one input; None otherwise."""
        features = [column for column in self.columns if column.role == "feature"]
        if self.table_files is None or len(features) > 1:
            return None
        (column,) = self.table_files.columns
        return column

    def inputs(self, *kinds: Kind) -> list[str]:
        """Names of the features of these types that are no files, in the order of the columns."""
        features = [column.name for column in self.columns if column.role == "feature" and column.file is None]
        return [name for name in features if self.kinds.get(name) in kinds]


def built(text: str, source: Path, work: Path) -> pd.DataFrame:
    """The rows that the generated dataset.py makes of the file."""
    part = place_part(source, work / "source")
    load_dataset(text, work).build(part.parent, work / "built", PARAMETERS["parts"])
    return pd.read_parquet(work / "built" / f"{part.stem}.parquet")


def load_dataset(text: str, work: Path) -> Any:
    """The generated dataset.py as a module."""
    path = work / "dataset.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("trainworthy_new_dataset", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def place_part(source: Path, folder: Path) -> Path:
    """A copy of the file as the first part. Numbered, since parts are read in order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"part-0001{source.suffix}"
    shutil.copyfile(source, part)
    return part
