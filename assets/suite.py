"""What a run's models are measured by: the suite, and which rows its slices have."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import TYPE_CHECKING

from trainworthy.assets.champion import verdict_log
from trainworthy.assets.contract import judged_contract
from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.code_identity import ENTRIES, KEPT, WORKER, CodeOnDisk
from trainworthy.lifecycle.evaluation.metadata_columns import (
    FILES_OF_QUANTILES,
    DescribedRows,
    described_rows,
    holds_free_text,
)
from trainworthy.lifecycle.evaluation.slice_levels import training_cuts
from trainworthy.lifecycle.evaluation.slice_parts import SlicePart, columns_of_parts, slice_parts
from trainworthy.lifecycle.evaluation.suite import changed_limits, suite_of
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.finding import Window
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.protocol.records import DatasetVersion, EvaluationReport, Snapshot
from trainworthy.lifecycle.protocol.suite import ChangedLimit, Suite
from trainworthy.lifecycle.provenance import last_change
from trainworthy.lifecycle.sampling import ROWS_OF_QUANTILES, evenly_spread
from trainworthy.lifecycle.spec.split import Windows
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd

# Groups of other types sort by their names, and not in time.
_TIMES = ("date", "timestamp")


def benchmark_parts(run: StepRun, predictions: pd.DataFrame) -> tuple[SlicePart, ...]:
    """The slices that are a condition or a file of rows, and those that decide."""
    benchmark, snapshot = run.use_case.spec.benchmark, run.record("snapshot", Snapshot)
    key = judged_contract(run).primary_key
    rows = _described(run, snapshot).read("benchmark", columns_of_parts(benchmark, key))
    return slice_parts(benchmark, predictions, rows, run.use_case.folder, key)


def shown_features(rows: Rows) -> tuple[str, ...]:
    """Features by whose values losses may be told: not sensitive, and no names of files."""
    return tuple(name for name in rows.features if name not in rows.sensitive and name not in rows.files)


def shown_values(run: StepRun, snapshot: Snapshot, rows: Rows) -> tuple[pd.DataFrame, dict[str, tuple[float, ...]]]:
    """The benchmark's shown_features and the metadata of files and free texts among the features; and where numbers
    among all these are cut, by some of the training rows.
    """
    described, names = _described(run, snapshot), shown_features(rows)
    count = snapshot.splits["training"].rows
    some, few = evenly_spread(count, ROWS_OF_QUANTILES), evenly_spread(count, FILES_OF_QUANTILES)
    plain = described.read("training", names, some)
    metadata = [column for column in described.columns.values() if column.of in rows.features]
    texts = [column.name for column in metadata if column.file is None and holds_free_text(plain[column.of])]
    of_files = [column.name for column in metadata if column.file is not None]
    cuts = training_cuts(plain)
    for columns, chosen in ((texts, some), (of_files, few)):
        if columns:
            cuts |= training_cuts(described.read("training", columns, chosen))
    return described.read("benchmark", [*names, *texts, *of_files]), cuts


def _described(run: StepRun, snapshot: Snapshot) -> DescribedRows:
    dataset = run.workspace.records.get(run.use_case.name, "dataset", snapshot.parents["dataset"])
    assert isinstance(dataset, DatasetVersion)
    return described_rows(run.workspace.state, snapshot, judged_contract(run), dataset)


def groups_in_time(run: StepRun) -> bool:
    """True where groups that sort next to each other follow each other in time."""
    split = run.use_case.spec.split
    return isinstance(split, Windows) and judged_contract(run).column(split.resample_by).logical_type in _TIMES


def benchmark_window(run: StepRun) -> Window | None:
    """First and last day of the benchmark, where its groups follow each other in time."""
    split = run.record("snapshot", Snapshot).splits["benchmark"]
    if not groups_in_time(run):
        return None
    return Window(*(date.fromisoformat(moment[:10]) for moment in (split.start, split.end)))


def benchmark_suite(run: StepRun, snapshot: Snapshot) -> Suite:
    """What this run's models are measured by."""
    folder, benchmark = run.use_case.folder, run.use_case.spec.benchmark
    code = CodeOnDisk(run.workspace.state.folder(*KEPT)).of((WORKER, *ENTRIES["evaluation"]))
    own = {"metrics.py": sha256_file(folder / "metrics.py")} if benchmark.metrics else {}
    return suite_of(
        run.use_case.name,
        benchmark,
        rows=snapshot.splits["benchmark"].file.sha256,
        label=snapshot.label_sha256,
        code=code.sha256,
        files=slice_files(run.use_case, run.workspace) | own,
    )


def limits_changed(run: StepRun) -> tuple[ChangedLimit, ...]:
    """What it declares otherwise than that of the verdict before, and who last changed a line that names it."""
    entries = [entry for entry in log.read(verdict_log(run)) if entry.action != "rollback"]
    now, name = run.record("evaluation", EvaluationReport).suite, run.use_case.name
    if not entries or now is None:
        return ()
    verdict = run.workspace.records.get(name, "promotion", entries[-1].verdict_sha256)
    before = run.workspace.records.get(name, "evaluation", verdict.parents["evaluation"])
    assert isinstance(before, EvaluationReport)
    if before.suite is None:
        return ()
    changes = tuple(changed_limits(before.suite, now))
    shared = run.use_case.suite_path
    files = [run.use_case.folder / "use_case.yaml", *([shared] if shared else [])]

    def by(key: str) -> str:
        word = re.findall(r"\w+", key)[-1]
        return "; ".join(f"{path.name}: {last_change(path.parent, path.name, word)}" for path in files)

    return tuple(
        ChangedLimit(key=key, before=json.dumps(then), now=json.dumps(here), by=by(key)) for key, then, here in changes
    )


def slice_files(use_case: UseCase, workspace: Workspace) -> dict[str, str]:
    """The bytes of the files that slices name; the empty text for one that is missing."""
    paths = {
        slice_spec.rows: use_case.folder / slice_spec.rows
        for slice_spec in use_case.spec.benchmark.slices
        if slice_spec.rows is not None
    }
    return {f"slice:{name}": sha256_file(path) if path.is_file() else "" for name, path in paths.items()}
