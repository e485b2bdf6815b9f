"""Columns that a dataset does not hold: the metadata of a feature's files or texts, named `photo.brightness`.

The label's column is read as the dataset holds it, a class by its name, and not as the number that rows keep of it.
A rule writes such a name in backticks, as any with a dot. A column of the contract that has the name is itself. What is
made of a file is kept by the hash of its bytes, so that each is decoded once, whatever version or run names it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.data.file_rows import sha_column
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.files.metadata import FORM, OF_FILES, OF_TEXTS, ValueKind, file_metadata, text_metadata
from trainworthy.lifecycle.files.tree import in_threads
from trainworthy.lifecycle.files.values import with_paths
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.records import DatasetVersion, Snapshot
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
from trainworthy.lifecycle.tasks.labels import by_place

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# The folder of the state that metadata of files lies in, by use case.
_FOLDER = "file_metadata"
# Training files that are decoded to cut metadata at their quantiles: the outer fortieth is known to 0.16 % of the rows.
FILES_OF_QUANTILES = 10_000
# A column of texts is searched by its metadata where more of its values than this are different: others come back.
_FREE_TEXT = 0.5


@dataclass(frozen=True)
class MetadataColumn:
    """A value of OF_FILES or OF_TEXTS of the column `of`; `file` is the kind of its files, None for texts."""

    of: str
    value: str
    logical_type: ValueKind
    file: FileKind | None = None

    @property
    def name(self) -> str:
        """As rules and reports tell it."""
        return f"{self.of}.{self.value}"


def metadata_of(column: Column) -> tuple[MetadataColumn, ...]:
    """The metadata of one column: of a feature that holds files or text and is not sensitive; of others none."""
    if column.role != "feature" or column.sensitive or (column.file is None and column.logical_type != "string"):
        return ()
    values = OF_TEXTS if column.file is None else OF_FILES[column.file]
    return tuple(MetadataColumn(column.name, name, kind, column.file) for name, kind in values.items())


def metadata_columns(contract: Contract) -> dict[str, MetadataColumn]:
    """All there are, by name; the contract's own columns come before them."""
    own = {column.name for column in contract.columns}
    return {
        metadata_column.name: metadata_column
        for column in contract.columns
        for metadata_column in metadata_of(column)
        if metadata_column.name not in own
    }


def holds_free_text(values: pd.Series) -> bool:
    """Whether a column's values are texts that hardly come back, which are searched by what they are like."""
    known = values.dropna()
    return len(known) > 0 and known.nunique() > _FREE_TEXT * len(known)


@dataclass(frozen=True)
class DescribedRows:
    """Rows of a snapshot's splits with their metadata.

    `root` is the dataset's folder, `kept` the one in which metadata of files is kept, `values` are what the numbers of
    a label's column stand for (Contract.label_values).
    """

    files: SplitFiles
    columns: Mapping[str, MetadataColumn]
    root: Path
    kept: Path
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def read(self, split: str, names: Sequence[str], rows: np.ndarray | None = None) -> pd.DataFrame:
        """These columns, of the split's own and of metadata; only rows of these ascending numbers, if given.

        Raises EvaluationError for a file that cannot be read as its kind.
        """
        described = [self.columns[name] for name in dict.fromkeys(names) if name in self.columns]
        own = [name for name in names if name not in self.columns]
        table = self.files.read(split, [*own, *_sources(described)], rows)
        made = {name: values for of in _grouped(described) for name, values in self._described(table, of).items()}
        made |= {name: by_place(table[name], values) for name, values in self.values.items() if name in own}
        return with_columns(table, made)[[*dict.fromkeys(names)]]

    def can_tell(self, names: Iterable[str]) -> bool:
        """Whether no column of these is made of files that are gone."""
        of_files = any(self.columns[name].file is not None for name in names if name in self.columns)
        return not of_files or self.root.is_dir()

    def _described(self, rows: pd.DataFrame, columns: Sequence[MetadataColumn]) -> dict[str, pd.Series]:
        """The metadata that is asked for of one column."""
        column = columns[0]
        table = text_metadata(rows[column.of]) if column.file is None else self._of_files(rows, column.of, column.file)
        return {described.name: table[described.value] for described in columns}

    def _of_files(self, rows: pd.DataFrame, name: str, kind: FileKind) -> pd.DataFrame:
        """Metadata by row, missing where there is no file; new files are decoded, several at a time."""
        import pandas as pd

        hashes, path = rows[sha_column(name)], self.kept / f"{kind}-{FORM}-{_decoder(kind)}.parquet"
        known = _stored(path, OF_FILES[kind])
        new = rows[hashes.notna() & ~hashes.isin(known.index)].drop_duplicates(sha_column(name))
        if len(new):
            paths = with_paths(new[[name]], [name], self.root)[name].tolist()
            files = list(zip(paths, new[sha_column(name)].tolist(), strict=True))
            before = known

            def keep(decoded: list[dict[str, Any]]) -> None:
                nonlocal known
                index = pd.Index(new[sha_column(name)].iloc[: len(decoded)], dtype="str")
                made = _typed(pd.DataFrame(decoded, index=index), OF_FILES[kind])
                known = pd.concat([before, made]) if len(before) else made
                _keep(path, known)

            in_threads(partial(_of_file, kind=kind), files, f"describing the files of {name}", keep)
        return known.reindex(hashes.astype("str").where(hashes.notna())).set_axis(rows.index)


def _decoder(kind: FileKind) -> str:
    """What made the values: another version of Pillow may decode a picture otherwise, or name its mode otherwise."""
    if kind not in ("picture", "mask"):
        return "python"
    import PIL

    return f"pillow{PIL.__version__}"


def _of_file(file: tuple[Path, str], kind: FileKind) -> dict[str, Any]:
    """Metadata of a file with its hash: kept by it, what another file is like would stay for ever."""
    path, sha256 = file
    if not path.is_file() or sha256_file(path) != sha256:
        fix = "restore the file, or materialize the dataset and the snapshot again"
        problem = "a file is not the one that the snapshot was made of"
        raise EvaluationError(problem, value=path.name, fix=fix, code="metadata.other_file")
    return file_metadata(path, kind)


def described_rows(
    state: StateFolder, snapshot: Snapshot, contract: Contract, dataset: DatasetVersion
) -> DescribedRows:
    """The rows of a snapshot of this dataset, by the contract that judged it."""
    return DescribedRows(
        SplitFiles(state.absolute(snapshot.splits["benchmark"].file.path).parent),
        metadata_columns(contract),
        root=state.absolute(dataset.path),
        kept=state.folder(_FOLDER, snapshot.use_case),
        values=contract.label_values,
    )


def _sources(columns: Iterable[MetadataColumn]) -> list[str]:
    """Columns of a split that metadata is made of."""
    names = [
        name
        for column in columns
        for name in ((column.of,) if column.file is None else (column.of, sha_column(column.of)))
    ]
    return list(dict.fromkeys(names))


def _grouped(columns: Iterable[MetadataColumn]) -> list[list[MetadataColumn]]:
    by: dict[str, list[MetadataColumn]] = {}
    for column in columns:
        by.setdefault(column.of, []).append(column)
    return [*by.values()]


_TYPES = {"integer": "Int64", "number": "float64", "string": "str"}


def _typed(table: pd.DataFrame, kinds: Mapping[str, ValueKind]) -> pd.DataFrame:
    return table[[*kinds]].astype({name: _TYPES[kind] for name, kind in kinds.items()})


def _stored(path: Path, kinds: Mapping[str, ValueKind]) -> pd.DataFrame:
    """What is kept by the hash of a file's bytes; nothing where it cannot be read, since it can be made again."""
    import pandas as pd

    with suppress(OSError, ValueError, KeyError):
        return _typed(pd.read_parquet(path), kinds)
    empty: dict[str, Any] = {name: [] for name in kinds}
    return _typed(pd.DataFrame(empty, index=pd.Index([], dtype="str")), kinds)


def _keep(path: Path, table: pd.DataFrame) -> None:
    """Of two runs that write at once one is kept, and the other's files are decoded again."""
    file = io.BytesIO()
    table.to_parquet(file)
    write_atomic(path, file.getvalue())
