"""What a step says in the terminal: where its run stands, what stopped it, and where to look."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from trainworthy.assets.step_run import StepRun
from trainworthy.assets.track import steps_of
from trainworthy.lifecycle.cost.duration import forecast_time
from trainworthy.lifecycle.cost.time_left import forecast_seconds, in_words, seconds_left
from trainworthy.lifecycle.errors import RecordError, StateError
from trainworthy.lifecycle.gates.ci import rows_of, table
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.gates.seeds import updates_of_stages
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.records import STEPS, PreflightReport, Record, Snapshot, StageReport, Step


def where_to_look(record: Record, report: Path | None) -> list[str]:
    """The command that replays a stage's first critical alarm, else its first one, and the report's path."""
    alarms = record.alarms if isinstance(record, StageReport) else ()
    worst_first = sorted(alarms, key=lambda alarm: (alarm.severity != "critical", alarm.step))
    incidents = [alarm.incident for alarm in worst_first if alarm.incident]
    replay = [f"replay: trainworthy replay {incidents[0]}"] if incidents else []
    return [*replay, *([f"report: {report}"] if report else [])]


def stopping_text(checks: tuple[CheckResult, ...]) -> str:
    """The stopping checks as lines: what was found and how to fix it; of preflight each trial that did not pass."""
    if trials_of(checks):
        return table(rows_of("preflight", checks))
    lines = []
    for check in stopping(checks):
        limits = f" (found {_short(check.observed)}, allowed {_short(check.threshold)})"
        limits_text = limits if check.threshold is not None else ""
        lines.append(f"  - {check.name}: {check.status}{limits_text}: {check.evidence}\n    fix: {check.fix}")
    return "\n".join(lines)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def step_line(run: StepRun, *, reused: bool = False) -> str:
    """Which step of how many this is, and how long the run will still take where there is a basis for it.

    After a step that is reused the next ones may be, too, and nothing is said of the time.
    """
    steps = steps_of(run)
    place = f"step {steps.index(run.step) + 1} of {len(steps)}"
    if reused:
        return place
    # Nothing hangs on it: a record that cannot be read, or a store that is away, stops the step that needs it.
    with suppress(RecordError, StateError):
        left = time_left(run, steps)
        return place if left is None else f"{place}, {in_words(left)}"
    return place


def time_left(run: StepRun, steps: list[Step]) -> float | None:
    """Seconds from this step's start to the end of the run's `steps`; None without a basis.

    Raises RecordError if a record of this run or of an earlier one cannot be read, StateError if the store is away.
    """
    records, name = run.workspace.records, run.use_case.name
    here = of_run(run, run.run_id)
    made = {step: record.cost.wall_seconds for step, record in here.items() if record.provenance.run_id == run.run_id}
    last = records.newest(name, steps[-1])
    earlier = of_run(run, last.provenance.run_id) if last is not None else {}
    seconds = {step: record.cost.wall_seconds for step, record in earlier.items()}
    return seconds_left(steps[steps.index(run.step) :], made, seconds, forecast_of(run, here))


def of_run(run: StepRun, run_id: str) -> dict[str, Record]:
    """A run's passed records by step."""
    records = ((step, run.workspace.records.of_run(run.use_case.name, step, run_id)) for step in STEPS)
    return {step: record for step, record in records if record is not None and record.passed}


def forecast_of(run: StepRun, here: dict[str, Record]) -> dict[str, float]:
    """Seconds of each later step by this run's preflight; {} before there is one."""
    preflight, snapshot, spec = here.get("preflight"), here.get("snapshot"), run.use_case.spec
    time = forecast_time(preflight.checks) if isinstance(preflight, PreflightReport) else None
    if time is None or not isinstance(snapshot, Snapshot):
        return {}
    split = snapshot.splits["training"]
    return forecast_seconds(time, updates_of_stages(split.rows, split.positives or 0, spec.training, spec.stages))
