"""Records as Dagster shows them: the same metadata keys on every step, made or reused, passed or stopped."""

from __future__ import annotations

import base64
import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from trainworthy.assets.step_run import StepOfRun
from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.rule import never_null
from trainworthy.lifecycle.contract.snapshot_contract import contract_is_kept, contract_of
from trainworthy.lifecycle.cost.forecast_error import error_figures
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.protocol.checks import CheckResult, by_badness
from trainworthy.lifecycle.protocol.records import (
    STAGES,
    Cost,
    DatasetVersion,
    EvaluationReport,
    PreflightReport,
    Record,
    Snapshot,
    StageReport,
    Verdict,
)
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.provenance import commit_url, git_state
from trainworthy.lifecycle.storage.records import RecordStore, record_sha256
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
from trainworthy.lifecycle.tasks import words_of
from trainworthy.lifecycle.use_case import UseCase

if TYPE_CHECKING:
    from trainworthy.lifecycle.promotion.reuse import Reused
    from trainworthy.resources.mlflow import TrackedRun
    from trainworthy.resources.workspace import Workspace

# Characters of a line that Dagster's page of an asset shows whole in a window of 1500 pixels.
LINE = 43
# The report's name among the artifacts of the MLflow run.
REPORT_ARTIFACT = "report.html"


def step_metadata(
    run: StepOfRun,
    workspace: Workspace,
    record: Record,
    tracked: TrackedRun | None,
    *,
    reused: bool,
    report: Path | None,
    before: Reused | None = None,
) -> dict[str, Any]:
    """Decision and why, links, pictures, figures, cost and lineage of a step: first what people look for first.

    `tracked` is None for a run that only validates data. With `before`, decision and reasons are the last judgement's.
    """
    from trainworthy.lifecycle.report import in_words

    reused_lines, judged = (before.lines, before.last) if before else ((), record)
    shown: dict[str, Any] = {
        "decision": in_words.decision(judged),
        "reasons": dg.MetadataValue.md(in_lines(in_words.markdown_list((*reused_lines, *in_words.reasons(judged))))),
    }
    if report is not None and tracked is not None:
        # A browser follows no file address from a page of a server: MLflow's page shows it, the path is to be copied.
        # An address as such would be cut off.
        shown["mlflow/report"] = dg.MetadataValue.md(f"[open the report]({tracked.url}/artifacts/{REPORT_ARTIFACT})")
    if report is not None:
        shown["report"] = dg.MetadataValue.path(report)
    if tracked is not None:
        shown["mlflow/run"] = dg.MetadataValue.url(tracked.url)
    shown |= {f"picture/{name}": picture(png, name) for name, png in pictures_of(run, workspace, record).items()}
    shown |= {f"metric/{name}": value for name, value in figures(run, workspace.records, record).items()}
    shown |= {f"rows/{name}": count for name, count in row_counts(record).items()}
    shown |= table_metadata(workspace.state, record)
    shown |= cost_metadata(Cost() if reused else record.cost) | avoided_metadata(record) | model_cost_metadata(record)
    shown |= lineage(run, workspace.records, record)
    return shown | {"lineage/reused": str(reused).lower()}


def in_lines(markdown: str) -> str:
    """A list with its sentences cut into lines: Dagster's page cuts off what is wider, and breaks no line itself."""
    return "\n".join(_broken(line) for line in markdown.split("\n"))


def _broken(line: str) -> str:
    lines = textwrap.wrap(line, LINE, break_long_words=False, break_on_hyphens=False)
    # What would begin a list, as a dash between words.
    return "\\\n  ".join(lines[:1] + [re.sub(r"^(\d*)([-+.)=])", r"\1\\\2", rest) for rest in lines[1:]])


def refusal_metadata(use_case: UseCase, error: TrainworthyError) -> dict[str, Any]:
    """The same keys for a step that was refused before it began: what is declared, and a cost of nothing."""
    from trainworthy.lifecycle.report import in_words

    declared = use_case.spec.dataset
    commit, dirty = git_state(use_case.folder)
    unknown = ("content_hash", "code_version", "environment_sha256", "seeds", "device", "identity", "record_sha256")
    return {
        "decision": "stopped",
        "reasons": dg.MetadataValue.md(in_lines(in_words.markdown_list((str(error),)))),
        "error": str(error),
        **cost_metadata(Cost()),
        "lineage/dataset_version": f"{declared.name}@{declared.version}",
        "lineage/git_commit": commit_metadata(use_case, commit),
        "lineage/git_dirty": "unknown" if dirty is None else str(dirty).lower(),
        **{f"lineage/{name}": "none" for name in unknown},
        "lineage/reused": "false",
    }


def lineage(run: StepOfRun, records: RecordStore, record: Record) -> dict[str, Any]:
    """Where the step came from; the same keys everywhere."""
    dataset = run.upstream.get("dataset", record)
    if not isinstance(dataset, DatasetVersion):
        snapshot = run.upstream.get("snapshot", record)
        parent = snapshot.parents.get("dataset")
        parent_record = records.get(run.use_case.name, "dataset", parent) if parent else None
        dataset = parent_record if isinstance(parent_record, DatasetVersion) else None
    declared = run.use_case.spec.dataset
    origin = record.provenance
    return {
        "lineage/dataset_version": f"{declared.name}@{declared.version}",
        "lineage/content_hash": dataset.content_hash if dataset is not None else "none",
        "lineage/git_commit": commit_metadata(run.use_case, origin.git_commit),
        "lineage/git_dirty": "unknown" if origin.git_dirty is None else str(origin.git_dirty).lower(),
        "lineage/code_version": origin.code_sha256,
        "lineage/environment_sha256": origin.environment_sha256,
        "lineage/seeds": ", ".join(map(str, origin.seeds)) or "none",
        "lineage/device": origin.device,
        "lineage/identity": record.identity,
        "lineage/record_sha256": record_sha256(record),
    }


def commit_metadata(use_case: UseCase, commit: str | None) -> str | dg.UrlMetadataValue:
    """The commit as a link where its repository has an https address, else as text."""
    address = commit_url(use_case.folder, commit)
    return dg.MetadataValue.url(address) if address else commit or "none"


def cost_metadata(cost: Cost) -> dict[str, float]:
    """Numeric, under the same names on every asset, so that Dagster plots them."""
    return {
        "cost/usd": cost.usd,
        "cost/cpu_seconds": cost.cpu_seconds,
        "cost/gpu_seconds": cost.gpu_seconds,
        "cost/wall_seconds": cost.wall_seconds,
        "cost/queue_seconds": cost.queue_seconds,
    }


def avoided_metadata(record: Record) -> dict[str, float]:
    """What a stopped stage's successors would have cost: the forecast and both ends of its interval."""
    avoided = record.avoided_usd if isinstance(record, StageReport) else None
    if avoided is None:
        return {}
    return {
        "cost/avoided_usd": avoided.value,
        "cost/avoided_usd_low": avoided.low,
        "cost/avoided_usd_high": avoided.high,
    }


def model_cost_metadata(record: Record) -> dict[str, float]:
    """The cost of the model that a verdict is about, in Dagster and MLflow under one name."""
    return {"cost/model_usd": record.total_cost.usd} if isinstance(record, Verdict) else {}


def row_counts(record: Record) -> dict[str, int]:
    """Row counts by name, where the step has rows."""
    match record:
        case DatasetVersion():
            return {"dataset": record.rows}
        case Snapshot():
            splits = {name: split.rows for name, split in record.splits.items()}
            return {"labelled": record.rows, "excluded": record.excluded_rows, **splits}
        case StageReport():
            return {"trained": record.rows}
        case EvaluationReport():
            return {"benchmark": record.rows}
        case _:
            return {}


def table_metadata(state: StateFolder, record: Record) -> dict[str, Any]:
    """What Dagster's catalog shows of tables, under its own names."""
    match record:
        case DatasetVersion():
            address = state.absolute(record.path).as_uri()
            return {"dagster/row_count": record.rows, "dagster/uri": address}
        case Snapshot():
            return {"dagster/row_count": record.rows, **_columns(state, record)}
        case _:
            return {}


def _columns(state: StateFolder, snapshot: Snapshot) -> dict[str, Any]:
    """The columns of the contract that judged the rows; {} of a snapshot from before it was kept, or if it is gone.

    By the kept file: contract.yaml takes half a second to compile.
    """
    if snapshot.contract is None or not contract_is_kept(state, snapshot.contract):
        return {}
    return {"dagster/column_schema": column_schema(contract_of(state, snapshot, Path()))}


def figures(run: StepOfRun, records: RecordStore, record: Record) -> dict[str, float]:
    """The step's figures, and after the last stage how far the forecasts were off."""
    return figures_of(record) | (_forecast_errors(run, records, record) if record.kind == "full" else {})


def _forecast_errors(run: StepOfRun, records: RecordStore, full: Record) -> dict[str, float]:
    preflight, *before = (
        records.of_run(run.use_case.name, step, run.run_id) for step in ("preflight", "smoke", "pilot")
    )
    stages = [record for record in (*before, full) if isinstance(record, StageReport)]
    return error_figures(preflight, stages) if isinstance(preflight, PreflightReport) else {}


def figures_of(record: Record) -> dict[str, float]:
    """The step's own figures by name, the same in MLflow and in Dagster."""
    match record:
        case Snapshot():
            return {"excluded_share": record.excluded_share}
        case PreflightReport():
            forecasts = (record.memory_bytes, record.seconds, record.cost_usd)
            return {f"forecast_{f.name}_{f.unit}": f.value for f in forecasts if f is not None}
        case StageReport():
            figures = {figure_key(name): value for name, value in record.metrics.items()}
            figures |= {"steps": float(record.steps), "attempts": 1.0 + len(record.attempts)}
            return figures | seconds_of(record) | curve_figures(record)
        case EvaluationReport():
            whole = (metric for metric in record.metrics if metric.slice is None)
            figures = {figure_key(f"{metric.model}_{metric.metric}"): metric.estimate.value for metric in whole}
            return {**figures, **gains(record), "latency_ms": record.latency_ms}
        case Verdict():
            return {
                f"{figure.quantity}_over_champion": figure.ratio
                for figure in record.serving
                if figure.ratio is not None
            }
        case _:
            return {}


def figure_key(name: str) -> str:
    """A figure's name as MLflow takes it: `recall[late]` is `recall:late`.

    Two classes that differ in what is replaced are two figures all the same.
    """
    plain = name.replace("[", ":", 1).removesuffix("]")
    taken = re.sub(r"[^/\w.\- :]", "_", plain)
    return taken if taken == plain else f"{taken}-{sha256_json(name)[:6]}"


def seconds_of(record: StageReport) -> dict[str, float]:
    """Where a stage's seconds went, and the share that made progress; {} where it was not measured."""
    if record.seconds is None:
        return {}
    parts = {f"seconds/{name}": value for name, value in record.seconds.by_part.items()}
    return {**parts, "replayed_steps": float(record.seconds.replayed_steps), "goodput": record.seconds.goodput}


def curve_figures(record: StageReport) -> dict[str, float]:
    """What the data-learning curve expects, both ends of each interval; empty where it cannot tell."""
    curve = record.data_curve
    expected = () if curve is None else (curve.gain, curve.full_loss)
    return {
        f"{interval.name}_{end}": getattr(interval, end)
        for interval in expected
        if interval is not None
        for end in ("low", "high")
    }


def gains(record: EvaluationReport) -> dict[str, float]:
    """Gain over each reference with its interval."""
    values: dict[str, float] = {}
    for comparison in record.comparisons:
        gain, name = comparison.gain, f"gain_over_{comparison.reference}"
        values |= {name: gain.value, f"{name}_low": gain.low, f"{name}_high": gain.high}
    return values


def pictures_of(run: StepOfRun, workspace: Workspace, record: Record) -> dict[str, bytes]:
    """Pictures where people would rather look; PNG, each under 100 kB. Drawn once, then read from the state folder."""
    names = PICTURES.get(type(record), ())
    if not names:
        return {}
    folder = workspace.state.folder("pictures", run.use_case.name, record_sha256(record))
    if not all((folder / f"{name}.png").is_file() for name in names):
        for name, png in _drawn(run, workspace.records, record).items():
            write_atomic(folder / f"{name}.png", png)
    return {name: (folder / f"{name}.png").read_bytes() for name in names}


PICTURES: dict[type[Record], tuple[str, ...]] = {
    StageReport: ("learning_curve",),
    EvaluationReport: ("reliability_curve", "comparisons", "slices"),
}


def _drawn(run: StepOfRun, records: RecordStore, record: Record) -> dict[str, bytes]:
    from trainworthy.lifecycle.report import pictures

    if isinstance(record, EvaluationReport):
        return {
            "reliability_curve": pictures.reliability_curve(record),
            "comparisons": pictures.comparison_chart(record.comparisons, words_of(record)),
            "slices": pictures.slice_chart(record),
        }
    reports = (records.of_run(run.use_case.name, step, run.run_id) for step in STAGES)
    return {
        "learning_curve": pictures.learning_curve([report for report in reports if isinstance(report, StageReport)])
    }


def picture(png: bytes, name: str) -> dg.MarkdownMetadataValue:
    """A PNG inside the page."""
    return dg.MetadataValue.md(f"![{name}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _shown(trial: Trial) -> dict[str, str | float]:
    """A row of a family's table: what was seen first, and words only where a check did not pass."""
    return {
        "check": trial.check, "status": trial.status, "seen": trial.evidence, "symptom": trial.symptom,
        "cause": trial.cause, "fix": trial.fix, "device": trial.device, "seconds": round(trial.seconds, 3),
    }  # fmt: skip


def check_result(check: CheckResult) -> dg.AssetCheckResult:
    """A CheckResult as Dagster's: what stops is a failed ERROR, other misses a WARN, not applicable a pass."""
    passed = check.status in ("pass", "not_applicable")
    severity = dg.AssetCheckSeverity.ERROR if check.stops else dg.AssetCheckSeverity.WARN
    metadata: dict[str, Any] = {"status": check.status, "evidence": check.evidence}
    metadata |= {
        name: value
        for name, value in (("observed", check.observed), ("threshold", check.threshold))
        if value is not None
    }
    if check.fix:
        metadata["fix"] = check.fix
    if trials := trials_of([check]):
        metadata["checks"] = dg.MetadataValue.table([dg.TableRecord(_shown(trial)) for trial in by_badness(trials)])
    elif check.details:
        # Through text, since NaN is no JSON for the UI.
        metadata["details"] = dg.MetadataValue.json(json.loads(json.dumps(check.details, default=str)))
    description = f"{check.evidence} Fix: {check.fix}" if check.fix and not passed else check.evidence
    return dg.AssetCheckResult(
        check_name=check.name, passed=passed, severity=severity, metadata=metadata, description=description
    )


def column_schema(contract: Contract) -> dg.TableSchema:
    """Name, type, what it is to a model, and whether rows may be null; constraints of several columns stay apart."""
    required = never_null(contract.rules)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                column.logical_type,
                description=_description(column),
                constraints=dg.TableColumnConstraints(
                    nullable=column.name not in required, unique=contract.primary_key == (column.name,)
                ),
                tags={"role": column.role},
            )
            for column in contract.columns
        ]
    )


def _description(column: Column) -> str:
    """Role, unit and time of a column, and that its values are never shown."""
    unit = f" in {column.unit}" if column.unit else ""
    known = f", known at {column.available_at}" if column.available_at else ""
    return f"{column.role.replace('_', ' ')}{unit}{known}{', sensitive' if column.sensitive else ''}"
