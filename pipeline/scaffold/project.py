"""The files of a new use case: laid out in a project of their own first, then copied into the user's.

By which metric, margin and guardrails a drafted use case is judged, from the kind of its task and its label.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.draft import contract_text, draft_contract
from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.errors import DatasetError, Problem, UseCaseError
from trainworthy.lifecycle.spec.task import KindName
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.tasks.words import has_unspaced, words_in
from trainworthy.pipeline.scaffold.long_tail import remarks
from trainworthy.pipeline.scaffold.profile import PARAMETERS, UseCaseDraft, free_texts
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.stage_text import with_stage
from trainworthy.pipeline.scaffold.target import FoundTarget
from trainworthy.pipeline.schema import COMMITTED
from trainworthy.resources.settings import PRODUCT, Settings

# What each split has its exact share of, where it is by strata; of other kinds of each class.
STRATA: dict[KindName, str] = {
    "multilabel": "combination of labels", "regression": "tenth of the label",
    "segmentation": "quarter by the share of the first class", "language_model": "quarter by the length",
}  # fmt: skip
MOST_SLICES, MOST_SLICE_VALUES = 2, 12
# Of a text that are read: each has an embedding in a batch.
MOST_WORDS = 400
CONTRACT_HEADING = """\
What every version of the dataset must hold. Drafted from the rows of v1; docs/how-to/contract.md explains it.
Where it says `reviewed: false`: is the value known when the model is asked? PT0S claims so, and only you can tell.
`trainworthy contract review {name}` asks for each of them.
A value that is known only later is no input (role: other)."""


def lay_out(request: Request, settings: Settings, draft: UseCaseDraft, project: Path) -> Path:
    """Write a whole project with this one use case to `project`; returns the use case's folder."""
    use_cases = settings.use_cases[0].name
    folder = project / use_cases / request.name
    stage = rendered("stage.yaml.j2", name=request.name, folder=use_cases, source=request.source)
    files = {
        folder / "use_case.yaml": _use_case_text(request, settings, draft),
        folder / "contract.yaml": _contract_text(request, draft),
        folder / "dataset.py": draft.dataset_text,
        folder / "model.py": _model_text(request, draft),
        folder / "first_model.yaml": rendered("first_model.yaml.j2"),
        project / "data" / f"{request.name}.yaml": rendered("parameters.yaml.j2", name=request.name, **PARAMETERS),
        project / "dvc.yaml": with_stage(None, request.name, stage),
        project / "stage.yaml": stage,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def _contract_text(request: Request, draft: UseCaseDraft) -> str:
    document = draft_contract(
        draft.rows,
        name=request.name,
        purpose=f"What the model of {request.name} learns from.",
        columns=draft.columns,
        key=draft.key,
        label=draft.target.label,
    )
    return contract_text(document, draft.columns, CONTRACT_HEADING.format(name=request.name))


def _use_case_text(request: Request, settings: Settings, draft: UseCaseDraft) -> str:
    values = {name: draft.rows[name].nunique() for name in draft.inputs("text")}
    asked_at = "" if draft.time is None else f", asked at {draft.time}"
    few = sorted((count, name) for name, count in values.items() if 1 < count <= MOST_SLICE_VALUES)
    return rendered(
        "use_case.yaml.j2",
        name=request.name,
        schema=_schema_path(settings.use_cases[0] / request.name),
        description=f"{_question(draft)}{asked_at}?",
        owner=request.owner or f"team:{request.name}",
        time=draft.time,
        target=draft.target.label.name,
        baselines=list(draft.target.label.kind.baselines),
        task=draft.target.task.model_dump(exclude_defaults=True, mode="json"),
        judged=judged_by(draft.target, draft.rows),
        day=draft.day,
        windows=draft.windows,
        slices=[name for _, name in few[:MOST_SLICES]],
        plan=draft.plan,
        stratum=STRATA.get(draft.target.task.kind, "class"),
        sku=next(iter(load_prices(settings.prices).skus)),
    )


def _question(draft: UseCaseDraft) -> str:
    """What the model is asked, without the question mark."""
    target, kind = draft.target, draft.target.task.kind
    if kind == "language_model":
        return f"With which byte does {target.column} go on"
    if draft.files is not None:
        noun = draft.files.folder.noun
        whole = {"binary": f"Is this {noun} one of {target.positive}", "multiclass": f"Which class is this {noun} of"}
        return whole.get(kind, f"Which class is each pixel of this {noun} of")
    if kind == "binary":
        return f"Will {target.column} be {target.positive}"
    if kind == "multilabel":
        return f"Which {target.column} does it have"
    return f"Which {target.column} is it" if kind == "multiclass" else f"How much is {target.column}"


def _schema_path(folder: Path) -> str | None:
    """The schema for editors, relative to the use case; None where the use case lies outside of its checkout."""
    inside = folder.is_relative_to(PRODUCT) and COMMITTED.is_file()
    return os.path.relpath(COMMITTED, folder) if inside else None


def _model_text(request: Request, draft: UseCaseDraft) -> str:
    if draft.target.task.kind == "language_model":
        return rendered("model_language.py.j2", name=request.name, column=draft.target.column)
    if draft.files is not None:
        return draft.files.model_text(request.name, draft.target)
    unit = unit_of(draft.target, draft.rows)
    if (alone := draft.files_alone) is not None:
        return alone.found.model_text(request.name, draft.target, alone.name, unit)
    texts = free_texts(draft.rows, draft.columns)
    files = draft.table_files
    pictures = [] if files is None else files.pictures
    text_files = [] if files is None else [column.name for column in files.columns if column.kind == "text"]
    return rendered(
        "model.py.j2",
        name=request.name,
        numbers=draft.inputs("number", "integer", "boolean"),
        categories=[*(name for name in draft.inputs("text") if name not in texts), *draft.clock],
        texts=[*texts, *text_files],
        unspaced=_has_unspaced(draft, texts),
        text_files=text_files,
        most_words=MOST_WORDS if text_files else most_words(draft.rows[texts]),
        pictures=[column.name for column in pictures],
        size=None if files is None else files.size,
        mode="" if files is None else files.mode,
        deep=any(column.found.contents.is_deep for column in pictures),
        moments=draft.inputs("time", "instant"),
        task=draft.target.task,
        unit=unit,
    )


def _has_unspaced(draft: UseCaseDraft, texts: Sequence[str]) -> bool:
    """Whether a text of these columns, or of files that a column names, has words without blanks between them."""
    files = () if draft.table_files is None else draft.table_files.columns
    in_files = any(column.kind == "text" and column.found.contents.has_unspaced for column in files)
    return in_files or any(has_unspaced(text) for name in texts for text in draft.rows[name].dropna().astype("str"))


def most_words(texts: pd.DataFrame) -> int:
    """Words of 95 in 100 texts of these columns at most, in whole eights, but no more than MOST_WORDS."""
    lengths = [len(words_in(text)) for name in texts for text in texts[name].dropna().astype("str")]
    return min(MOST_WORDS, 8 * max(1, math.ceil(float(np.quantile(lengths, 0.95)) / 8))) if lengths else 0


def install(request: Request, settings: Settings, made: Path, publish: Callable[[Path], None]) -> None:
    """Copy the files into the user's project, or leave it as it was. Raises UseCaseError if one has come in the way.

    use_case.yaml comes last, since it makes a folder a use case; `publish` enters the dataset version before.
    """
    use_cases = settings.use_cases[0]
    project, folder, source = use_cases.parent, use_cases / request.name, made / use_cases.name / request.name
    data, parameters = project / "data", f"data/{request.name}.yaml"
    with contextlib.ExitStack() as undo:
        _make_shared_folder(use_cases, undo)
        # Before all else: of two calls at once, the one that makes the folder has the name.
        _make_folder(folder, undo)
        _make_shared_folder(data, undo)
        _make_folder(project / request.source, undo)
        shutil.copytree(made / request.source, project / request.source, dirs_exist_ok=True)
        for name in ("contract.yaml", "dataset.py", "model.py", "first_model.yaml"):
            shutil.copyfile(source / name, folder / name)
        _restore(project / parameters, undo)
        shutil.copyfile(made / parameters, project / parameters)
        ignored = _restore(data / ".gitignore", undo)
        write_atomic(data / ".gitignore", _with_ignored(ignored, request).encode())
        old = _restore(project / "dvc.yaml", undo)
        stage = (made / "stage.yaml").read_text(encoding="utf-8")
        write_atomic(project / "dvc.yaml", with_stage(old, request.name, stage).encode())
        _restore(data / "versions.yaml", undo)
        publish(project)
        shutil.copyfile(source / "use_case.yaml", folder / "use_case.yaml")
        undo.pop_all()


def _make_folder(path: Path, undo: contextlib.ExitStack) -> None:
    """Make a folder, to be taken away again. Raises UseCaseError if there is one: that is not this call's to touch."""
    try:
        path.mkdir()
    except FileExistsError:
        fix = "take another name, or see whether the other call made what you want"
        problem = Problem("name", "another call has made this folder meanwhile", fix, str(path))
        raise UseCaseError(path.name, [problem]) from None
    undo.callback(shutil.rmtree, path)


def _make_shared_folder(path: Path, undo: contextlib.ExitStack) -> None:
    """Make a folder that other use cases have as well, unless it is there; to be taken away if it stays empty."""
    if not path.exists():
        path.mkdir(exist_ok=True)
        undo.callback(_remove_if_empty, path)


def _restore(path: Path, undo: contextlib.ExitStack) -> str | None:
    """The text of a file, None if there is none; to be put back as it is."""
    content = path.read_bytes() if path.is_file() else None
    if content is None:
        undo.callback(path.unlink, missing_ok=True)
        return None
    undo.callback(write_atomic, path, content)
    return content.decode()


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another call has put its files there
        folder.rmdir()


def _with_ignored(text: str | None, request: Request) -> str:
    """data/.gitignore that also ignores the rows of this dataset, both the file's copy and what is built of it."""
    lines = (text or "").splitlines()
    patterns = [f"/{request.name}/", f"/{Path(request.source).name}/"]
    return "\n".join([*lines, *(line for line in patterns if line not in lines)]) + "\n"


# Of a logarithmic loss in nats, as a share of what the classes' shares alone have: 0.005 where two are even, less where
# one is rare. On flights a network of half the width loses as much.
MARGIN_SHARE = 0.0075
# Of the overlap of masks and answers, from 0 to 1.
MARGIN_IOU = 0.01
# Of bits a byte.
MARGIN_BITS = 0.02
# Root mean square distance of probability and share, without what chance adds. A calibrated model whose days are off
# together keeps half of it on 30 days in 7 to 92 of 100 benchmarks, this in 72 to 100 (decision 0063).
CALIBRATION = 0.1
# The plain mean distance, of kinds that have no probability a row.
CALIBRATION_PLAIN = 0.05
# Of a number, in standard deviations of the label: 0.01 is two parts in a hundred of an R squared of 0.
MARGIN_SPREADS = 0.01
# A prediction that is off on average by so much of a standard deviation is off for everybody.
BIAS_SPREADS = 0.2
# By how much fewer labels may lie inside of an interval, or on a quantile's own side, than declared.
COVERAGE = 0.1


@dataclass(frozen=True)
class Judged:
    """As benchmark.primary and benchmark.guardrails of use_case.yaml have it; `remarks` stand there as comments."""

    primary: dict[str, Any]
    guardrails: list[dict[str, Any]]
    remarks: tuple[str, ...] = ()


def _calibrated(limit: float) -> dict[str, Any]:
    return {"metric": "calibration_error", "at_most": limit}


def judged_by(target: FoundTarget, rows: pd.DataFrame) -> Judged:
    """The drafted metrics; those of numbers are in the label's unit."""
    if target.task.kind == "segmentation":
        return Judged({"metric": "mean_iou", "margin": MARGIN_IOU}, [_calibrated(CALIBRATION_PLAIN)])
    if target.task.kind == "language_model":
        primary = {"metric": "bits_per_byte", "margin": MARGIN_BITS}
        return Judged(primary, [_calibrated(CALIBRATION_PLAIN)])
    if target.task.kind != "regression":
        margin = _drafted(target, MARGIN_SHARE * _constant_loss(target, rows))
        return Judged({"metric": "log_loss", "margin": margin}, [_calibrated(CALIBRATION)])
    spread, quantiles = _spread(target, rows), target.task.quantiles
    margin = _drafted(target, MARGIN_SPREADS * spread)
    if quantiles:
        return Judged({"metric": "pinball", "margin": margin}, [_coverage(quantiles)])
    bias = {"metric": "bias", "at_most": _drafted(target, BIAS_SPREADS * spread)}
    tail = remarks(target.column, rows[target.column].dropna().to_numpy(dtype="float64"))
    return Judged({"metric": "rmse", "margin": margin}, [bias], tail)


def unit_of(target: FoundTarget, rows: pd.DataFrame) -> float | None:
    """The spread of a number to one digit, in which its network's loss is counted; None for other kinds."""
    return _drafted(target, _spread(target, rows)) if target.task.kind == "regression" else None


def _constant_loss(target: FoundTarget, rows: pd.DataFrame) -> float:
    """The logarithmic loss of who always says the shares of the classes, in nats; of several labels their mean."""
    values = rows[target.column].dropna()
    if target.separator is None:
        shares = values.value_counts(normalize=True).to_numpy()
    else:
        named = values.str.get_dummies(sep=target.separator)
        held = named[[str(class_name) for class_name in target.classes]].mean().to_numpy()
        # A yes and a no of each label.
        shares = np.concatenate([held, 1 - held])
    of_each = -shares[shares > 0] * np.log(shares[shares > 0])
    return float(of_each.sum()) / (1 if target.separator is None else len(target.classes))


def _spread(target: FoundTarget, rows: pd.DataFrame) -> float:
    return float(rows[target.column].std())


def _coverage(quantiles: tuple[float, ...]) -> dict[str, Any]:
    """What has to lie between the outer quantiles; of one quantile, on its wider side."""
    if len(quantiles) > 1:
        inside = quantiles[-1] - quantiles[0]
        return {"metric": "interval_coverage", "at_least": round(max(inside - COVERAGE, inside / 2), 3)}
    level = max(quantiles)
    name = f"coverage[{level:g}]"
    if level < 0.5:
        return {"metric": name, "at_most": round(level + COVERAGE, 3)}
    return {"metric": name, "at_least": round(level - COVERAGE, 3)}


def _drafted(target: FoundTarget, value: float) -> float | int:
    """A margin, limit or unit to one digit. Raises DatasetError where the label gives none above 0: a margin of 0 asks
    for nothing, and nothing is counted in units of it."""
    if not (math.isfinite(value) and value > 0):
        fix = "give rows with other values too, or name another column"
        raise DatasetError(
            f"{target.column!r} varies too little in these rows to judge a model by", value=value, fix=fix
        )
    return rounded(value)


def rounded(value: float) -> float | int:
    """To one digit, of a value above 0; whole where that is exact."""
    one_digit = round(value, -math.floor(math.log10(value)))
    return int(one_digit) if one_digit == int(one_digit) else one_digit
