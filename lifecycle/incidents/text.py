"""An incident and its replay in words, for the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from trainworthy.lifecycle.incidents.incident import Incident
from trainworthy.lifecycle.protocol.results import Compared, FirstBad, GuiltyRow, ReplayResult


def replay_text(incident: Incident, result: ReplayResult) -> str:
    """What the replay shows, most important first."""
    alarm = incident.alarm
    lines = [f"{incident.use_case}, {incident.job.stage}, step {incident.step}, {alarm.monitor}: {alarm.symptom}"]
    lines += ["", _reproduced(result), f"  {_way(result)}", *_rate(incident)]
    lines += [f"  {line}" for line in (*map(_compared, result.compared), *_elsewhere(result), *result.notes)]
    by_script = result.reproduced == "insufficient"
    bad = "not known, since the update was not made again" if by_script else _first(result.first_bad)
    lines += ["", f"first bad operation: {bad}"]
    lines += ["", f"rows: {result.rows_told}", *(f"  {_row(row)}" for row in result.rows)]
    lines += ["", "layers:", *(f"  {line}" for line in result.layers)] if result.layers else []
    return "\n".join([*lines, "", *_cause(incident, result)])


def _cause(incident: Incident, result: ReplayResult) -> list[str]:
    """What the alarm took for the cause, unless the replay knows better."""
    alarm, bad = incident.alarm, result.first_bad
    if result.reproduced == "not" and alarm.monitor.startswith("non_finite") and bad is None:
        return [
            "as this code makes the update, all of its numbers are finite: what the incident met does not come again"
        ]
    if bad is not None and bad.phase != "before":
        return [
            "cause: the first bad operation above",
            f"at the alarm it was taken for: {alarm.cause}",
            f"fix: {alarm.fix}",
        ]
    return [f"likely cause: {alarm.cause}", f"fix: {alarm.fix}"]


def known_text(known: Mapping[str, Path]) -> str:
    """The ids of all incidents, newest first."""
    if not known:
        return "no training here has met an alarm"
    return "\n".join([*known, "", "replay one: trainworthy replay <the end of its name>"])


def _reproduced(result: ReplayResult) -> str:
    match result.reproduced:
        case "bit_for_bit":
            return "reproduced bit for bit"
        case "within_tolerance":
            return f"reproduced, not bit for bit: within {result.tolerance}"
        case "insufficient":
            return f"insufficient, NOT reproduced: {result.tolerance}"
        case _:
            return f"NOT reproduced: {result.tolerance}"


def _rate(incident: Incident) -> list[str]:
    """The learning rate of the step and the usual one, where it was recorded."""
    signals = incident.at_step
    before = [earlier.learning_rate for earlier in incident.signals if earlier.step < incident.step]
    # A script need not tell it.
    if signals is None or not any([*before, signals.learning_rate]):
        return []
    return [f"  learning rate: {signals.learning_rate:.3g}, median before {statistics.median(before):.3g}"]


def _way(result: ReplayResult) -> str:
    if result.reproduced == "insufficient":
        return result.from_told
    if not result.on_the_way:
        return f"{result.from_told}, which is where it happened"
    return f"{result.from_told}; {result.agreed} of {result.on_the_way} recorded updates on the way had equal bits"


def _compared(comparison: Compared) -> str:
    return (
        f"{comparison.name}: {comparison.replayed}, as recorded"
        if comparison.equal
        else f"{comparison.name}: {comparison.replayed}, recorded {comparison.recorded}"
    )


def _elsewhere(result: ReplayResult) -> tuple[str, ...]:
    return (f"here it runs with {', '.join(result.elsewhere)}",) if result.elsewhere else ()


def _first(bad: FirstBad | None) -> str:
    if bad is None:
        return "none, all numbers of this update are finite"
    if bad.phase == "before":
        return bad.evidence
    where = " of ".join(
        part for part in ((bad.node and f"{bad.operation} in {bad.node}") or bad.operation, bad.module) if part
    )
    line = f", {bad.line}" if bad.line else ""
    return f"{where}{line} ({bad.phase}): {bad.evidence}"


def _row(row: GuiltyRow) -> str:
    key = ", ".join(f"{name}={value}" for name, value in row.key.items()) or "key not recorded"
    return f"{key} (row {row.row} of the stage): {row.told}"
