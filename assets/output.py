"""The run's report as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.assets.step_run import StepOfRun
from trainworthy.lifecycle.gates.baseline import readable_baseline, with_accepted
from trainworthy.lifecycle.protocol.records import STEPS, Record, Step
from trainworthy.lifecycle.provenance import commit_url
from trainworthy.lifecycle.storage.records import RecordStore
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.resources.settings import dagster_url

if TYPE_CHECKING:
    from trainworthy.lifecycle.promotion.reuse import Reused
    from trainworthy.resources.mlflow import TrackedRun
    from trainworthy.resources.workspace import Workspace


def write_report(
    run: StepOfRun, workspace: Workspace, tracked: TrackedRun | None, stopped_at: Step | None,
    before: Reused | None = None,
) -> Path:  # fmt: skip
    """Render all records of the run to <state>/reports/<use case>/<run id>.html.

    latest.html beside it is the newest one of a run that trains; one that found an older verdict than the last one
    leaves it as it is.
    """
    from trainworthy.lifecycle.report.render import render

    links = {"Dagster run": f"{dagster_url()}/runs/{run.run_id}"}
    if tracked is not None:
        links["MLflow run"] = tracked.url
    records = run_records(run, workspace.records)
    commit = next((record.provenance.git_commit for record in reversed(records.values())), None)
    if address := commit_url(run.use_case.folder, commit):
        links["Commit"] = address
    reused_lines = before.lines if before else ()
    baseline = readable_baseline(run.use_case.folder)
    shown: dict[Step, Record] = {
        step: record.model_copy(update={"checks": with_accepted(step, record.checks, baseline)})
        for step, record in records.items()
    }
    page = render(shown, links, stopped_at, run.run_id, run.use_case.spec.description, reused_lines).encode()
    path = workspace.state.folder("reports", run.use_case.name, f"{run.run_id}.html")
    write_atomic(path, page)
    if run.trains and (before is None or before.last == records["promotion"]):
        write_atomic(path.with_name("latest.html"), page)
    return path


def run_records(run: StepOfRun, store: RecordStore) -> dict[Step, Record]:
    """What this run made or reused, and for steps that it did not have, what the step was made from."""
    records: dict[Step, Record] = {}
    for step in STEPS:
        record = store.of_run(run.use_case.name, step, run.run_id) or run.upstream.get(step)
        if record is not None:
            records[step] = record
    return records
