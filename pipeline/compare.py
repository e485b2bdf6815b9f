"""What `trainworthy compare` does: finds rows that two models answered, and measures both on them.

Nothing is trained or scored: the answers are those that evaluations and verdicts kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
from pydantic import ValidationError

from trainworthy.lifecycle.contract.snapshot_contract import contract_of
from trainworthy.lifecycle.errors import RecordError, SettingsError
from trainworthy.lifecycle.evaluation.compare import compared
from trainworthy.lifecycle.evaluation.kept_answers import kept_answers, renamed_models, side_by_side
from trainworthy.lifecycle.evaluation.metadata_columns import DescribedRows, described_rows
from trainworthy.lifecycle.evaluation.predicate import parse as parse_predicate
from trainworthy.lifecycle.evaluation.slice_parts import columns_of_parts, slice_parts
from trainworthy.lifecycle.evaluation.suite import same_rows
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.figures import CANDIDATE, CHAMPION
from trainworthy.lifecycle.protocol.records import DatasetVersion, EvaluationReport, Snapshot, StageReport, Verdict
from trainworthy.lifecycle.protocol.serving import UNITS
from trainworthy.lifecycle.report.compare import TwoModels, compare_text, render_compare
from trainworthy.lifecycle.report.decision_costs import costs_text
from trainworthy.lifecycle.report.formatting import usd
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.statistic_columns import statistic_columns
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.lifecycle.wording import count
from trainworthy.pipeline.show import find_use_case, verdict_log
from trainworthy.resources.settings import read_settings
from trainworthy.resources.shared_state import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class JudgedModel:
    """A version with its last verdict and the records that the verdict was made from."""

    version: str
    verdict: Verdict
    evaluation: EvaluationReport
    full: StageReport
    snapshot: Snapshot


def compare(use_case: str, first: str, second: str, page: Path | None) -> str:
    """Both models' figures as text; the page is written if wanted.

    Raises RecordError for a version that was never judged, and for two that never answered the same rows.
    """
    models = two_models(find_use_case(use_case), first, second)
    if page is not None:
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            write_atomic(page, render_compare(models, made_at).encode())
        except OSError as error:
            fix = "name a file in a folder that can be written to, such as compared.html"
            raise SettingsError(f"the page cannot be written: {error.strerror}", value=str(page), fix=fix) from None
    return compare_text(models) + (f"\npage  {page}\n" if page is not None else "")


def two_models(use_case: UseCase, first: str, second: str) -> TwoModels:
    """Two versions of the use case's model on the newest rows that both answered."""
    state = StateFolder(read_settings().var)
    entries, store = verdict_log(use_case.name), records_of(read_settings())
    mine, theirs = (_judged(_version(name, entries, use_case), entries, store, use_case) for name in (first, second))
    if mine.version == theirs.version:
        fix = "name two different ones; `trainworthy history` lists them"
        raise RecordError("both are the same version", value=mine.version, fix=fix)
    table, on = _common(state, mine, theirs)
    assert on.evaluation.suite is not None
    try:
        benchmark = BenchmarkSpec.model_validate(on.evaluation.suite.declared)
    except ValidationError:
        fix = "judge one of them again with this version of Trainworthy"
        raise RecordError("the suite was declared in another version's form", value=on.version, fix=fix) from None
    contract = contract_of(state, on.snapshot, use_case.contract_path)
    kind = kind_of(target_of(use_case.spec.task, contract.label.classes))
    lacking = [
        column for model in (CANDIDATE, CHAMPION) for column in statistic_columns(kind, model) if column not in table
    ]
    if lacking:
        fix = "compare versions of one task; the present one is that of use_case.yaml"
        raise RecordError("the answers that are kept are of another task", value=", ".join(lacking), fix=fix)
    dataset = store.get(use_case.name, "dataset", on.snapshot.parents["dataset"])
    described = described_rows(state, on.snapshot, contract, cast("DatasetVersion", dataset))
    comparisons = compared(
        table, benchmark, kind, _masks(described, on, benchmark, table, use_case, contract.primary_key)
    )
    return TwoModels(
        use_case=use_case.name,
        first=mine.version,
        second=theirs.version,
        measured_on=f"benchmark {on.evaluation.benchmark}: {count(len(table))} rows, "
        f"{count(int(table['group'].nunique()))} groups",
        facts=(
            *zip(_FACTS, _facts(mine), _facts(theirs), strict=True),
            *_decides(mine, theirs),
            *_served(mine, theirs),
        ),
        metrics=tuple(item for item in comparisons if not item.part),
        parts=tuple(item for item in comparisons if item.part),
        costs=costs_text(on.evaluation.suite.declared),
    )


_FACTS = ("verdict", "judged (UTC)", "parameters", "cost of the model")


def _facts(model: JudgedModel) -> tuple[str, ...]:
    return (
        model.verdict.decision,
        model.verdict.provenance.created_at[:16].replace("T", " "),
        count(model.full.parameters),
        usd(model.verdict.total_cost.usd),
    )


def _decides(mine: JudgedModel, theirs: JudgedModel) -> Iterator[tuple[str, str, str]]:
    """Both operating points, where one of the two has one."""
    points = [model.verdict.decides for model in (mine, theirs)]
    if any(points):
        first, second = ("answers alone" if point is None else point.told for point in points)
        yield "decides", first, second


def _served(mine: JudgedModel, theirs: JudgedModel) -> Iterator[tuple[str, str, str]]:
    """What both take to be served: measured in turns where they met, else each at its own time."""
    for on, other in ((mine, theirs), (theirs, mine)):
        if on.verdict.compared_with == other.version and on.verdict.serving:
            for measurement in on.verdict.serving:
                own, met = (_figure(measurement.candidate), _figure(measurement.champion))
                figures = (own, met) if on is mine else (met, own)
                yield (f"{measurement.title} in {UNITS[measurement.quantity]}, in turns", *figures)
            return
    each = [f"{model.evaluation.latency_ms:.3g}" for model in (mine, theirs)]
    yield ("ms to answer a row, not at one time", each[0], each[1])


def _figure(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g}"


def _version(version: str, entries: tuple[log.LogEntry, ...], use_case: UseCase) -> str:
    if version != CHAMPION:
        return version
    entry = log.champion(entries)
    if entry is None:
        fix = "name two versions; `trainworthy history` lists them"
        raise RecordError("there is no champion", value=use_case.name, fix=fix)
    return entry.model_version


def _judged(version: str, entries: tuple[log.LogEntry, ...], store: StateRecords, use_case: UseCase) -> JudgedModel:
    """The version by its newest verdict."""
    own = [entry for entry in entries if entry.model_version == version and entry.action != "rollback"]
    if not own:
        known = ", ".join(dict.fromkeys(entry.model_version for entry in entries)) or "none"
        raise RecordError("this version was never judged", value=version, fix=f"name one of these: {known}")
    name = use_case.name
    verdict = cast("Verdict", store.get(name, "promotion", own[-1].verdict_sha256))
    evaluation = cast("EvaluationReport", store.get(name, "evaluation", verdict.parents["evaluation"]))
    full = cast("StageReport", store.get(name, "full", verdict.parents["full"]))
    snapshot = cast("Snapshot", store.get(name, "snapshot", verdict.parents["snapshot"]))
    return JudgedModel(version, verdict, evaluation, full, snapshot)


def _common(state: StateFolder, mine: JudgedModel, theirs: JudgedModel) -> tuple[pd.DataFrame, JudgedModel]:
    """Both models' answers in one table, the first's as `candidate`, and the model whose suite they are answers to."""
    tables = [(on, _on(state, on, other)) for on, other in ((mine, theirs), (theirs, mine))]
    known = [(on, table) for on, table in tables if table is not None]
    if not known:
        raise RecordError(
            "these two models never answered the same rows, so no figure is of both",
            value=f"versions {mine.version} and {theirs.version}",
            fix="train and judge one of them while the other is champion: its verdict keeps both models' answers",
        )
    on, table = max(known, key=lambda pair: pair[0].verdict.provenance.created_at)
    swapped = {CANDIDATE: CHAMPION, CHAMPION: CANDIDATE}
    return (table if on is mine else renamed_models(table, swapped)), on


def _on(state: StateFolder, on: JudgedModel, other: JudgedModel) -> pd.DataFrame | None:
    """Both models' answers to the rows that the one was evaluated on; None if the other's are not kept."""
    if on.evaluation.suite is None:
        return None
    if on.verdict.answers is not None and on.verdict.compared_with == other.version:
        both = kept_answers(state.absolute(on.verdict.answers.path).parent)
        if both is not None:
            return both
    own, paths = other.evaluation.suite, [state.absolute(model.evaluation.predictions.path) for model in (on, other)]
    if own is None or not same_rows(on.evaluation.suite, own) or not all(path.is_file() for path in paths):
        return None
    mine, theirs = (pd.read_parquet(path) for path in paths)
    return side_by_side(mine, theirs, pd.DataFrame())


def _masks(
    described: DescribedRows, on: JudgedModel, benchmark: BenchmarkSpec, table: pd.DataFrame, use_case: UseCase,
    key: tuple[str, ...],
) -> Mapping[str, np.ndarray]:  # fmt: skip
    """Slices by condition or file, where the benchmark's rows, and the files that a condition asks about, are there."""
    if not described.files.path("benchmark").is_file() or not any(
        slice_spec.column is None for slice_spec in benchmark.slices
    ):
        return {}
    assert on.evaluation.suite is not None
    files = on.evaluation.suite.files
    same = [
        slice_spec
        for slice_spec in benchmark.slices
        if (slice_spec.rows is None or _unchanged(use_case.folder / slice_spec.rows, files, slice_spec.rows))
        and (slice_spec.where is None or described.can_tell(parse_predicate(slice_spec.where).columns))
    ]
    benchmark = benchmark.model_copy(update={"slices": tuple(same)})
    rows = described.read("benchmark", columns_of_parts(benchmark, key))
    parts = slice_parts(benchmark, table, rows, use_case.folder, key)
    return {part.name: part.mask for part in parts if part.declared.column is None}


def _unchanged(folder: Path, files: Mapping[str, str], name: str) -> bool:
    """True if a file of rows still has the bytes that the suite was measured with."""
    path = folder / name
    return path.is_file() and sha256_file(path) == files.get(f"slice:{name}")
