"""What a folder of files holds, as far as a use case needs it: rows, label, split and network; or all that is wrong."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from trainworthy.lifecycle.contract.draft import ColumnDraft
from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.spec.task import TaskSpec
from trainworthy.pipeline.scaffold.contents import Contents, read_contents
from trainworthy.pipeline.scaffold.folder import NO_CLASSES, PICTURES, TEXTS, Folder, read_folder
from trainworthy.pipeline.scaffold.folder_files import PART, FoundFiles
from trainworthy.pipeline.scaffold.held import LEAST_CLASS_ROWS
from trainworthy.pipeline.scaffold.profile import Plan, UseCaseDraft, load_dataset, with_base_rate
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.shares import are_groups, choose_shares
from trainworthy.pipeline.scaffold.target import FoundTarget, find_target
from trainworthy.pipeline.scaffold.text_profile import find_texts_of_folder
from trainworthy.pipeline.scaffold.windows import Windows, updates

KEY, LABEL, MASK = "name", "label", "mask"
# Of all tensors together; more are made batch by batch.
MOST_TENSOR_BYTES = 10**9
# Each mask is as many labels as it has pixels, so that few of them make a batch.
MASK_BATCH = 16


def find_files(request: Request, source: Path, work: Path) -> tuple[UseCaseDraft | None, list[Problem]]:
    """What the folder `source` holds; None and every problem that could be found. `work` is an empty folder.

    The rows are those of the dataset.py that is made here.
    """
    folder, problems = read_folder(source, request.group, request.kind)
    if folder is not None and folder.form in ("pictures", "texts"):
        problems += _few_files(source, folder)
    if folder is None or problems:
        return None, problems
    contents, problems = read_contents(source, folder)
    problems += _group_problems(request, folder)
    if contents is None or problems:
        return None, problems
    if folder.form == "documents":
        problems += _of_classes(request)
        if problems or not request.is_named:
            return None, problems
        return find_texts_of_folder(request, source, folder, contents, work)
    target, problems = _target(request, folder, contents)
    if target is None or problems or not request.is_named:
        return None, problems
    files = FoundFiles(source, folder, contents)
    group = request.group or (None if request.split else _group_column(folder))
    text = _dataset_text(request, files, target, group)
    rows = _rows(text, files, work)
    windows, problems = choose_shares(rows, target.label, (KEY,), group, request.split, work)
    if windows is None:
        return None, problems
    if folder.form == "masks":
        batch_size, epochs = updates(windows.training, windows.pilot, (MASK_BATCH,))
        windows = dataclasses.replace(windows, batch_size=batch_size, epochs=epochs)
    plan = plan_of_files(files, len(rows))
    return UseCaseDraft(
        kinds={}, target=target, time=None, day=None, key=(KEY,), dataset_text=text, rows=rows,
        columns=tuple(_columns(rows, files, target, group)), windows=windows,
        observations=tuple(_observations(files, rows, windows, request)), plan=with_base_rate(plan, rows, target),
        # This file is checked by its folder, and what it imports by the link to it: its own class is another there.
        files=files,  # pyright: ignore[reportArgumentType]
    ), []  # fmt: skip


def _of_classes(request: Request) -> Iterator[Problem]:
    if request.positive is not None:
        fix = "leave it out, or give a folder for each class"
        yield Problem("--positive", "names a class, and the next byte of texts is predicted", fix, request.positive)


def _few_files(path: Path, folder: Folder) -> Iterator[Problem]:
    """Classes of too few files, before any is opened."""
    rare = [(name, count) for name, count in Counter(folder.classes).items() if count < LEAST_CLASS_ROWS]
    if rare:
        counts = ", ".join(f"{name!r} {count}" for name, count in rare[:4])
        more = f" and {len(rare) - 4} more classes" if len(rare) > 4 else ""
        problem = f"a class needs {LEAST_CLASS_ROWS} {folder.noun}s, so that each split has some: {counts}{more}"
        fix = "give more of them, join them into one class, or take the folder out"
        fix += f"; {NO_CLASSES}" if folder.form == "texts" else ""
        yield Problem("--data", problem, fix, str(path))
    plain: dict[str, set[str]] = {}
    for name in folder.classes:
        plain.setdefault(name.strip().casefold(), set()).add(name)
    alike = [sorted(names) for names in plain.values() if len(names) > 1]
    if alike:
        problem = f"names of classes differ by case or by a blank alone: {', '.join(map(repr, alike[0]))}"
        yield Problem("--data", problem, "put the files of one class into one folder", str(path))


def _group_problems(request: Request, folder: Folder) -> Iterator[Problem]:
    name = request.group
    if name not in (None, "folder", "prefix"):
        fix = "write prefix (what stands before the first _ or - of a file's name) or folder (an inner folder for each)"
        yield Problem("--group", "is nothing that names of files tell", fix, name)
    elif name == "prefix" and not folder.prefixes:
        fix = "name the files GROUP_NUMBER, or put each group into a folder of its own and write --group folder"
        yield Problem("--group", "some names of files have nothing before a _ or -", fix, name)
    elif name == "folder" and not folder.folders:
        fix = "put the files of each group into a folder of its own, or leave --group out"
        yield Problem("--group", "the files lie in no inner folders", fix, name)


def _target(request: Request, folder: Folder, contents: Contents) -> tuple[FoundTarget | None, list[Problem]]:
    """The label by the rules of a table's column of texts; of masks their classes."""
    if folder.form == "masks":
        given = {"--kind": request.kind, "--positive": request.positive}
        problems = [
            Problem(option, "does not fit: a picture with a mask is kind segmentation", "leave it out", value)
            for option, value in given.items()
            if value not in (None, "segmentation")
        ]
        why = f"masks beside pictures, of {len(contents.classes)} classes: kind segmentation"
        task = TaskSpec(kind="segmentation")
        return FoundTarget(MASK, task, why, "text", classes=contents.classes), problems
    table = pd.DataFrame({LABEL: pd.Series(folder.classes, dtype="str")})
    count = len(set(folder.classes))
    if request.kind == "segmentation":
        fix = "give images/ and masks/ with files of the same names, or leave --kind out"
        return None, [Problem("--kind", f"needs masks, and the folder holds {count} classes", fix, request.kind)]
    # Whatever their names look like, they are names of classes.
    kind = request.kind or ("binary" if count == 2 else "multiclass")
    target, problems = find_target(dataclasses.replace(request, target=LABEL, kind=kind), table, {LABEL: "text"})
    return _of_folders(target, count), [_of_data(problem) for problem in problems]


def _of_folders(target: FoundTarget | None, count: int) -> FoundTarget | None:
    """Said of folders, since there is no column yet."""
    if target is None:
        return None
    return dataclasses.replace(target, why=f"{count} folders, a class each: kind {target.task.kind}")


def _of_data(problem: Problem) -> Problem:
    return dataclasses.replace(problem, where="--data") if problem.where == "--target" else problem


def _group_column(folder: Folder) -> str | None:
    """What may name whom a file is about: the inner folder, or what its name begins with."""
    for name, values in (("folder", folder.folders), ("prefix", folder.prefixes)):
        if values and are_groups(pd.Series(values)):
            return name
    return None


def _dataset_text(request: Request, files: FoundFiles, target: FoundTarget, group: str | None) -> str:
    columns = [files.column, *([MASK] if files.folder.form == "masks" else [])]
    places = ", ".join(f"{place} for {name}" for place, name in enumerate(target.classes))
    return rendered(
        "dataset_files.py.j2",
        name=request.name,
        form=files.folder.form,
        noun=files.folder.noun,
        classes=places,
        suffixes=TEXTS if files.folder.form == "texts" else PICTURES,
        columns=columns,
        table=target.table,
        groups=[group] if group else [],
    )


def _rows(text: str, files: FoundFiles, work: Path) -> pd.DataFrame:
    """The rows that the generated dataset.py makes; below `work` their files lie where the dataset has them."""
    files.place(work / "files")
    return load_dataset(text, work).table(work / "files" / PART)


def _columns(rows: pd.DataFrame, files: FoundFiles, target: FoundTarget, group: str | None) -> Iterator[ColumnDraft]:
    # A network of masks needs one size; one of classes brings every picture to its own.
    size = files.contents.size if files.folder.form == "masks" else None
    for name in map(str, rows.columns):
        if name == files.column:
            yield ColumnDraft(name=name, role="feature", file=files.column, size=size)
        elif name == target.column:
            file: FileKind | None = "mask" if name == MASK else None
            yield ColumnDraft(name=name, role="target", remark=target.remark, file=file, size=size)
        elif name == group:
            remark = "left out: whole groups of it lie in one split, so the model meets new ones only"
            yield ColumnDraft(name=name, role="entity", remark=remark)
        else:
            yield ColumnDraft(name=name, role="key")


def plan_of_files(files: FoundFiles, rows: int) -> Plan:
    """Sizes of the networks: widths whose training takes minutes on two cores."""
    per_batch = rows * files.row_bytes > MOST_TENSOR_BYTES
    if files.folder.form == "texts":
        return Plan({"width": 64, "dropout": 0.3}, learning_rate=0.003, latency_ms=50, per_batch=per_batch)
    width = {"width": 16, "dropout": 0.1 if files.folder.form == "masks" else 0.3}
    latency = 100 if files.folder.form == "masks" else 50
    return Plan(width, learning_rate=0.003, latency_ms=latency, per_batch=per_batch)


def _observations(files: FoundFiles, rows: pd.DataFrame, windows: Windows, request: Request) -> Iterator[str]:
    """What a person should know of the files, a line each."""
    folder, contents = files.folder, files.contents
    if folder.form == "masks":
        shares = ", ".join(f"{name} {share:.1%}" for name, share in zip(contents.classes, contents.shares, strict=True))
        yield f"{len(rows):,} pictures, each with its mask; of all pixels {shares}"
        if contents.converts:
            yield "the masks hold 0 and 255: the copies hold 0 and 1, and so must those of a next part"
        if contents.classes[0] == "class_0":
            yield (
                f"the classes have no names: write them in contract.yaml (label: classes, in the order of the values), "
                f"or before new into {request.data}/classes.txt, a name a line"
            )
    else:
        counts = Counter(folder.classes).most_common()
        few = f", {counts[-1][0]!r} the fewest ({counts[-1][1]:,})" if counts[-1][1] < counts[0][1] else ""
        yield f"{len(rows):,} {folder.noun}s in {len(counts)} folders: {counts[0][0]!r} has {counts[0][1]:,}{few}"
    if folder.form != "texts":
        yield files.sizes_text()
    if contents.repeated:
        yield f"{contents.repeated:,} {folder.noun}s repeat another one byte for byte: remove them"
    else:
        yield f"no {folder.noun} repeats another one byte for byte"
    if folder.left_out:
        yield f"left out: {'; '.join(folder.left_out)}"
    if windows.split.by != "group":
        yield (
            f"not seen: whether several {folder.noun}s are of one {files.things}. Those of one must lie "
            "in one split, or the figures are too good: --group prefix (what stands before the first _ or - of a name) "
            "or --group folder (an inner folder for each)"
        )
