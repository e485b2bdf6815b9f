"""What the job preflight_<use case> leaves for a pull request: table, annotations, JUnit XML."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainworthy.assets.step_run import StepOfRun
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.gates.baseline import readable_baseline, with_accepted
from trainworthy.lifecycle.gates.ci import Row, github_annotations, junit, rows_of, summary, table
from trainworthy.lifecycle.gates.refused import refused_rows
from trainworthy.lifecycle.protocol.records import Record, Step
from trainworthy.lifecycle.provenance import commit_of
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic

# The intent of the job that serves pull requests.
PREFLIGHT = "preflight"


def junit_path(state: StateFolder, use_case: str) -> Path:
    """Where CI finds the results: the same place in every run."""
    return state.folder("reports", use_case, "preflight.xml")


def forget(state: StateFolder, use_case: str) -> None:
    """Remove the results of the run before, so that whatever ends this one early leaves none that look like its own."""
    junit_path(state, use_case).unlink(missing_ok=True)


def tell(run: StepOfRun, state: StateFolder, records: Mapping[Step, Record]) -> str:
    """XML of all checks of the run so far, annotations under GitHub Actions; gives the summary for the log."""
    baseline = readable_baseline(run.use_case.folder)
    checks_by_step = {step: with_accepted(step, record.checks, baseline) for step, record in records.items()}
    rows = [row for step, checks in checks_by_step.items() for row in rows_of(step, checks)]
    record = records[run.step]
    about = {"run": run.run_id, "commit": record.provenance.git_commit or "none", "device": record.provenance.device}
    path = _leave(state, run.use_case.folder, rows, record.provenance.created_at, about)
    # A stop tells its table itself, as the last lines.
    quiet = not record.passed or all(row.quiet for row in rows)
    return "\n".join([summary(rows), *([] if quiet else [table(rows)]), f"  JUnit: {path}"])


def tell_refusal(state: StateFolder, folder: Path, step: str, error: TrainworthyError, run_id: str) -> None:
    """XML and annotations of what kept the use case in this folder, or a step of it, from beginning."""
    about = {"run": run_id, "commit": commit_of(folder) or "none", "device": "host"}
    _leave(state, folder, refused_rows(step, error, folder), datetime.now(UTC).isoformat(timespec="seconds"), about)


def _leave(state: StateFolder, folder: Path, rows: Sequence[Row], created_at: str, about: Mapping[str, str]) -> Path:
    """Write the XML, print the annotations; gives the XML's path."""
    path = junit_path(state, folder.name)
    write_atomic(path, junit(folder.name, rows, created_at, about))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        paths = (path for path in folder.rglob("*") if path.suffix in (".py", ".yaml"))
        files = {path.relative_to(folder).as_posix() for path in paths}
        # At the start of a line of stdout, where GitHub reads them.
        for line in github_annotations(rows, _from_root(folder), files):
            print(line, file=sys.stdout, flush=True)
    return path


def _from_root(folder: Path) -> str:
    """The folder as GitHub names it: from the checkout on, or from the working directory."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.as_posix()
