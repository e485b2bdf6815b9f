"""The snapshot: labelled rows, split and written once, addressed by their content."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.model import Contract, Label
from trainworthy.lifecycle.contract.snapshot_contract import keep_contract
from trainworthy.lifecycle.data.file_rows import sha_column
from trainworthy.lifecycle.data.files import SplitFiles, write_split_files
from trainworthy.lifecycle.errors import DatasetError, EvaluationError
from trainworthy.lifecycle.files.content import content_hash
from trainworthy.lifecycle.files.tree import in_threads
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.records import DatasetVersion, SnapshotBody, Split, StoredFile
from trainworthy.lifecycle.spec.split import SplitSpec, Windows
from trainworthy.lifecycle.storage.state import StateFolder, sync_folder
from trainworthy.lifecycle.use_case import UseCase

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def with_label(frame: pd.DataFrame, label: Label, folder: Path | None = None) -> pd.DataFrame:
    """The rows that have a label, as column `label.name`. Raises DatasetError if a value is none of the label's.

    An event is int8, a class its place among the declared ones, several labels a text of 0 and 1, one character each in
    their order, a number float64, a mask in `folder` a text (tasks/segmentation.py), a text itself.
    """
    labelled = frame[frame[label.column].notna()]
    values = labelled[label.column]
    if label.type == "class":
        return with_columns(labelled, {label.name: _places(values, label)})
    if label.type == "labels":
        return with_columns(labelled, {label.name: _texts_of_names(values, label)})
    if label.type == "number":
        return with_columns(labelled, {label.name: _numbers(values, label)})
    if label.type == "text":
        return with_columns(labelled, {label.name: _texts(values, label)})
    if label.type == "mask":
        assert folder is not None
        return with_columns(labelled, {label.name: _masks(values, label, folder)})
    if label.greater_than is not None:
        return with_columns(labelled, {label.name: (values > label.greater_than).astype("int8")})
    if not values.isin([0, 1]).all():
        other = values[~values.isin([0, 1])].iloc[0]
        fix = "give the label a greaterThan in contract.yaml, or a column of 0 and 1"
        problem = f"the label column {label.column} holds other values than 0 and 1"
        raise DatasetError(problem, value=str(other), fix=fix)
    return with_columns(labelled, {label.name: values.astype("int8")})


def _places(values: pd.Series, label: Label) -> np.ndarray:
    """The place of each value among the declared classes, int16."""
    import pandas as pd

    places = pd.Index(label.classes).get_indexer(pd.Index(values))
    if (places < 0).any():
        # The contract's own check names the values, unless the column is sensitive.
        fix = "name them in contract.yaml (label: classes), or correct the rows"
        problem = f"the label column {label.column} holds values that are none of its {len(label.classes)} classes"
        raise DatasetError(problem, value=f"{int((places < 0).sum())} rows", fix=fix)
    return places.astype("int16")


def _texts_of_names(values: pd.Series, label: Label) -> pd.Series:
    """Of each text of names a text of 0 and 1, one character for each declared one: 'b|a' of a, b and c is '110'."""
    import pandas as pd

    places = {str(name): place for place, name in enumerate(label.classes)}
    digits: dict[str, str] = {}
    for text in values.unique():
        names = text.split(label.separator) if text else []
        held = {places.get(name, -1) for name in names}
        if -1 not in held and len(held) == len(names):
            digits[text] = _digits(held, len(places))
    coded = values.map(digits)
    wrong = coded.isna()
    if wrong.any():
        # The contract's own check names the rows by their key.
        problem = (
            f"the label column {label.column} holds texts that name a label twice, or one that is none of its "
            f"{len(places)} classes"
        )
        fix = f"name them in contract.yaml (label: classes), or correct the rows; {label.separator!r} stands between"
        raise DatasetError(problem, value=f"{int(wrong.sum())} rows", fix=fix)
    return pd.Series(coded, dtype="str")


def _digits(held: Collection[int], count: int) -> str:
    digits = bytearray(b"0" * count)
    for place in held:
        digits[place] = ord("1")
    return digits.decode()


def _numbers(values: pd.Series, label: Label) -> np.ndarray:
    """The values as float64; infinite ones are no labels."""
    import numpy as np

    numbers = values.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        fix = "leave such rows without a label (null), or correct them"
        wrong = numbers[~np.isfinite(numbers)]
        problem = f"the label column {label.column} holds {len(wrong)} values that are no finite number"
        raise DatasetError(problem, value=str(wrong[0]), fix=fix)
    return numbers


def _texts(values: pd.Series, label: Label) -> pd.Series:
    """The texts themselves; a text of white space has nothing that could be predicted."""
    empty = int((values.str.strip() == "").sum())
    if empty:
        # The contract's own check names the rows by their key.
        fix = "leave such rows out where the dataset is made, or without a label (null)"
        raise DatasetError(f"the label column {label.column} holds empty texts", value=f"{empty} rows", fix=fix)
    return values.astype("str")


def _masks(values: pd.Series, label: Label, folder: Path) -> np.ndarray:
    """Texts of the masks of files, `(N,)`, read in parallel."""
    import numpy as np

    from trainworthy.lifecycle.tasks.masks import read_mask
    from trainworthy.lifecycle.tasks.segmentation import Segmentation

    kind = Segmentation(label.classes)

    def text(value: str) -> str:
        return str(kind.column(read_mask(folder / value, len(label.classes))[None])[0])

    try:
        return np.array(in_threads(text, values.tolist(), "reading masks"), dtype=object)
    except EvaluationError as error:
        raise DatasetError(error.problem, value=error.value, fix=error.fix) from None


@contextmanager
def written_splits(
    state: StateFolder,
    use_case: UseCase,
    source: Path,
    splits: Mapping[str, pd.DataFrame],
    label: str,
    hashes: Mapping[str, Sequence[str | None]] | None = None,
) -> Iterator[SplitFiles]:
    """The splits of the dataset in `source` as files in a folder that is gone afterwards, unless it was installed.

    `splits` need the column `label` only; their index counts the dataset's rows. `hashes` are of the bytes of the files
    that each row of the dataset names, by column; a split has them beside the paths.
    """
    import numpy as np
    import pandas as pd

    parent = state.folder("snapshots", use_case.name)
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".writing-"))
    labelled = pd.concat([rows[label] for rows in splits.values()])
    try:
        positions = {name: np.asarray(rows.index) for name, rows in splits.items()}
        texts = {sha_column(name): values for name, values in (hashes or {}).items()}
        yield write_split_files(source, folder, positions, labelled, texts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def install_snapshot(
    state: StateFolder, use_case: UseCase, contract: Contract, dataset: DatasetVersion,
    splits: Mapping[str, pd.DataFrame], written: SplitFiles, labelled_rows: int,
) -> SnapshotBody:  # fmt: skip
    """Move the written files to where their content belongs; returns the body of the Snapshot record.

    Two processes at once write the same content; the first to rename wins and both go on with it. `splits` hold the
    label, the columns of the split and the prediction time. `labelled_rows` are those of the dataset that have a label.
    """
    content, label = content_hash(written.folder), contract.label
    target = written.folder.parent / content.sha256
    install_rows(written.folder, target)
    excluded = dataset.rows - labelled_rows
    return SnapshotBody(
        content_hash=content.sha256,
        contract_sha256=contract.sha256,
        contract=keep_contract(state, use_case.name, contract),
        label_sha256=contract.label_sha256,
        label=label.name,
        feature_columns=contract.feature_columns,
        rows=labelled_rows,
        excluded_rows=excluded,
        excluded_share=excluded / dataset.rows,
        benchmark=f"{_benchmark(dataset, use_case.spec.split, splits['benchmark'])}, {label.name} v{label.version}",
        splits={
            name: _split(state, use_case, SplitFiles(target).path(name), rows, label) for name, rows in splits.items()
        },
    )


def snapshot_is_whole(state: StateFolder, splits: dict[str, Split]) -> bool:
    """True if every split's file still has the bytes that were written."""
    paths = ((state.absolute(split.file.path), split.file.sha256) for split in splits.values())
    return all(path.is_file() and sha256_file(path) == sha256 for path, sha256 in paths)


def install_rows(temporary: Path, target: Path) -> None:
    """Rename into place, unless sound equal rows lie there already: another process may be reading them."""
    if target.exists() and not _holds_its_content(target):
        # Aside in one move, so that nobody finds half of it.
        target.rename(temporary.with_name(f"{temporary.name}-damaged"))
    try:
        os.replace(temporary, target)
    except OSError:
        if not _holds_its_content(target):
            raise
    shutil.rmtree(temporary.with_name(f"{temporary.name}-damaged"), ignore_errors=True)
    sync_folder(target.parent)


def _holds_its_content(target: Path) -> bool:
    """True if the folder's rows are the ones that it is named after."""
    try:
        return content_hash(target).sha256 == target.name
    except DatasetError:
        return False


def _benchmark(dataset: DatasetVersion, spec: SplitSpec, rows: pd.DataFrame) -> str:
    """Which rows the benchmark is: a window of time, or a share of this version by a hash."""
    if isinstance(spec, Windows):
        form = "%Y-%m-%d" if spec.whole_days else "%Y-%m-%d %H:%M"
        first, last = rows[spec.column].min(), rows[spec.column].max()
        window = f"{dataset.name} {first:{form}} to {last:{form}}"
        return window if spec.group_column is None else f"{window}, new groups of {spec.group_column}"
    what = f"groups of {spec.group_column}" if spec.group_column else "rows"
    return f"{dataset.name}@{dataset.revision} {spec.shares.benchmark:g} of the {what} by {spec.by}, salt {spec.salt}"


def _split(state: StateFolder, use_case: UseCase, path: Path, rows: pd.DataFrame, label: Label) -> Split:
    column = use_case.spec.split.time_column or use_case.spec.prediction_time
    return Split(
        name=path.stem,
        file=StoredFile(path=state.relative(path), sha256=sha256_file(path), bytes=path.stat().st_size),
        rows=len(rows),
        positives=int(rows[label.name].sum()) if label.type == "event" else None,
        labels="" if label.type == "event" else label.kind.in_words(rows[label.name]),
        groups=int(rows[use_case.spec.split.resample_by].nunique()),
        start="" if column is None else rows[column].min().isoformat(),
        end="" if column is None else rows[column].max().isoformat(),
    )
