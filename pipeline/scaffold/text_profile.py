"""Texts whose next bytes are predicted, of a table's column or of files: their pieces, the split, and the rest."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pandas as pd

from trainworthy.lifecycle.contract.draft import ColumnDraft
from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.spec.task import TaskSpec
from trainworthy.pipeline.scaffold.contents import Contents
from trainworthy.pipeline.scaffold.folder import TEXTS, Folder
from trainworthy.pipeline.scaffold.folder_files import PART, FoundFiles
from trainworthy.pipeline.scaffold.pieces import Cut, Names, cut_of, of_pieces, piece_bytes, splits_hold_whole_texts
from trainworthy.pipeline.scaffold.profile import Plan, UseCaseDraft, built, load_dataset
from trainworthy.pipeline.scaffold.reading import Reading
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.shares import are_groups, choose_shares, find_group
from trainworthy.pipeline.scaffold.source import Kind, free_name
from trainworthy.pipeline.scaffold.target import FoundTarget
from trainworthy.pipeline.scaffold.windows import Windows, choose_windows

TEXT, DOCUMENT, FOLDER, PREFIX = "text", "name", "folder", "prefix"
PLAN = Plan(
    {"width": 96, "blocks": 4, "entries": 8192, "table_width": 16, "dropout": 0.3}, learning_rate=0.006, latency_ms=50
)
_ADDED = "left out: made by dataset.py"
_UNREAD = "left out: the drafted network reads the text alone"


def find_texts_of_table(
    request: Request,
    source: Path,
    work: Path,
    raw: pd.DataFrame,
    kinds: dict[str, Kind],
    target: FoundTarget,
    reading: Reading | None,
    formats: dict[str, str],
) -> tuple[UseCaseDraft | None, list[Problem]]:
    """What is written for a column of texts; None and what is wrong with them. `work` is an empty folder."""
    if target.label.name in raw.columns:
        problem = f"the label of the texts would have the name of another column, {target.label.name!r}"
        return None, [Problem("--data", problem, "rename that column")]
    if request.keys:
        problem = "names a row, and of texts each piece is one: they are numbered"
        return None, [Problem("--key", problem, "leave it out", list(request.keys))]
    texts, time = raw[target.column].dropna().astype("str"), request.time
    sizes = [len(text.encode()) for text in texts]
    # Whom rows are about is found in the file's own rows: of pieces of a text every value repeats.
    group = request.group or (None if time or request.split else find_group(raw, target.column, ()))
    cut, names = cut_of(target.task.length or 0, sizes), _names(raw.columns, sizes, is_split=not time and group is None)
    day = time and free_name("day", time, kinds)
    text = rendered(
        "dataset.py.j2", name=request.name, kinds=kinds, time=time, target=target, day=day, numbered=None,
        reading=reading, formats=formats, cut=cut, names=names, files={}, clock={},
    )  # fmt: skip
    rows = built(text, source, work)
    if day is not None:
        windows, problems = choose_windows(rows, day, target.label)
    else:
        by = group or (None if request.split else names.passage or names.document)
        windows, problems = choose_shares(rows, target.label, (names.piece,), by, request.split)
    if windows is None:
        return None, problems
    remarks = {names.document: "the row of the file", names.passage: "pieces in a row"} | ({day: ""} if day else {})
    columns = tuple(_columns(rows, target, names.piece, windows, time, remarks))
    observations = (*_observations(texts, len(raw), rows[target.column], cut), *_split_observations(windows, names))
    return UseCaseDraft(
        kinds, target, time, day, (names.piece,), text, rows, columns, of_pieces(windows), observations, PLAN
    ), []


def _names(taken: Collection[str], sizes: Sequence[int], *, is_split: bool) -> Names:
    """`passage` only where rows are split by it: whole texts are too few, or one is too large."""
    piece, document, passage = (free_name(name, "text", taken) for name in ("piece", "document", "passage"))
    return Names(piece, document, passage if is_split and not splits_hold_whole_texts(sizes) else None)


def find_texts_of_folder(
    request: Request, source: Path, folder: Folder, contents: Contents, work: Path
) -> tuple[UseCaseDraft | None, list[Problem]]:
    """What is written for a folder of texts; None and what is wrong with them. `work` is an empty folder."""
    sizes = [facts.bytes for facts in contents.texts]
    if max(sizes) < 2:
        return None, [Problem("--data", "no text is longer than one byte", "give longer texts", str(source))]
    length = piece_bytes(max(sizes))
    how = ", as asked" if request.kind else " (in a folder for each class they would be multiclass)"
    why = f"{_counted(len(sizes))} without classes: kind language_model, each byte by those before it{how}"
    target = FoundTarget(TEXT, TaskSpec(kind="language_model", length=length), why, "text")
    cut, group = cut_of(length, sizes), request.group or (None if request.split else _group_column(folder))
    names = Names("piece", DOCUMENT, None if group or request.split or splits_hold_whole_texts(sizes) else "passage")
    by = group or (None if request.split else names.passage or DOCUMENT)
    text = rendered(
        "dataset_documents.py.j2", name=request.name, suffixes=TEXTS, cut=cut, names=names,
        groups=[group] if group else [],
    )  # fmt: skip
    files = FoundFiles(source, folder, contents)
    files.place(work / "source")
    module = load_dataset(text, work)
    whole = module.table(work / "source" / PART)
    rows = module.cut(whole, set())
    rows.insert(0, names.piece, range(len(rows)))
    windows, problems = choose_shares(rows, target.label, (names.piece,), by, request.split)
    if windows is None:
        return None, problems
    remarks = {DOCUMENT: "the file", FOLDER: "the file's folder", names.passage: "pieces in a row"}
    columns = tuple(_columns(rows, target, names.piece, windows, None, remarks))
    observations = [*_observations(whole[TEXT], len(whole), rows[TEXT], cut), *_split_observations(windows, names)]
    if contents.repeated:
        observations.append(
            f"{contents.repeated:,} files repeat another one byte for byte: their pieces are there once"
        )
    if folder.left_out:
        observations.append(f"left out: {'; '.join(folder.left_out)}")
    return UseCaseDraft(
        kinds={}, target=target, time=None, day=None, key=(names.piece,), dataset_text=text, rows=rows,
        columns=columns, windows=of_pieces(windows), observations=tuple(observations), plan=PLAN, files=files,
    ), []  # fmt: skip


def _group_column(folder: Folder) -> str | None:
    """What may name whom a text is about, as far as there are enough of it: the inner folder, or a name's beginning."""
    for name, values in ((FOLDER, folder.folders), (PREFIX, folder.prefixes)):
        if values and are_groups(pd.Series(values)):
            return name
    return None


def _columns(
    rows: pd.DataFrame,
    target: FoundTarget,
    piece: str,
    windows: Windows,
    time: str | None,
    remarks: dict[str | None, str],
) -> Iterator[ColumnDraft]:
    """The text is the one input; `remarks` say of columns that dataset.py adds what they are."""
    group = windows.split.group if windows.split.by == "group" else None
    for name in map(str, rows.columns):
        if name == target.column:
            yield ColumnDraft(name=name, role="feature", remark=target.remark)
        elif name == piece:
            yield ColumnDraft(name=name, role="key")
        elif name == time:
            yield ColumnDraft(name=name, role="event_time", remark="when the model is asked")
        elif name == group:
            remark = f"{remarks[name]}; " if name in remarks else ""
            remark += "whole groups of it lie in one split, so the model meets new ones only"
            yield ColumnDraft(name=name, role="entity", remark=f"left out: {remark}")
        elif name in remarks:
            remark = (
                f"{_ADDED}, {remarks[name]}" if remarks[name] else f"{_ADDED}; splits and intervals go by whole days"
            )
            yield ColumnDraft(name=name, role="other", remark=remark)
        else:
            yield ColumnDraft(name=name, role="other", remark=_UNREAD)


def _observations(texts: pd.Series, count: int, pieces: pd.Series, cut: Cut) -> Iterator[str]:
    """What a person should know of the texts, a line each."""
    sizes = [len(text.encode()) for text in texts]
    middle = f"{statistics.median(sizes):,.0f} bytes" + (
        f" in the middle, {max(sizes):,} the longest" if len(sizes) > 1 else ""
    )
    longer = sum(size > cut.length for size in sizes)
    yield f"{_counted(len(sizes))} of {middle}: {len(pieces):,} pieces of up to {cut.length} bytes"
    if longer:
        yield f"{_counted(longer)} of more bytes than a piece: cut behind lines and words"
    empty = count - len(sizes) + int(((texts.str.strip() == "") | (texts.str.len() < 2)).sum())
    if empty:
        yield f"{empty:,} of them give no piece: empty, white space alone or a single letter"
    if cut.every > 1:
        yield (
            f"of all pieces every {_ordinal(cut.every)} is kept, so that a training takes minutes (EVERY in "
            "dataset.py; a next version with another EVERY has other rows and needs --backfill)"
        )
    yield "pieces that came before word for word are left out"


def _counted(texts: int) -> str:
    return f"{texts:,} text{'' if texts == 1 else 's'}"


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _split_observations(windows: Windows, names: Names) -> Iterator[str]:
    """What the split can't see."""
    group = windows.split.group if windows.split.by == "group" else None
    if group is not None and group == names.passage:
        yield (
            "the texts are too few (under 60), or one is too large (over a tenth of all bytes), to lie in one split "
            "whole: passages of them do, so that a model is judged on texts of which it knows other parts"
        )
    if group == names.document:
        yield "not seen: whether several texts are of one author or source, which --group keeps in one split"
    if windows.split.by in ("hash", "stratified"):
        yield "pieces of one text lie in several splits: figures are too good for new texts (leave --split out)"
