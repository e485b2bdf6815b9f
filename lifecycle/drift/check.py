"""drift: has the newest window left what history shows, feature by feature?

A finding is a warning: the world may have changed, and training on it is then right. A column that declares
`allowedDrift` in contract.yaml stops the step beyond it.

`ended` gives the values of a code list that ended before the newest window: told with their last day, and no finding.

A change is a finding once, when it begins. Where months arrive at once it began before the window, and nobody was told;
and as long as the rows are trained on, a model learns of carriers that do not fly any more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.distances import jensen_shannon, psi, shares, volume_change
from trainworthy.lifecycle.drift.block_null import MINIMUM_BLOCKS, judge, running_total
from trainworthy.lifecycle.drift.categories import CODE_LIST
from trainworthy.lifecycle.drift.columns import Categories, Reader
from trainworthy.lifecycle.drift.detect import column_findings
from trainworthy.lifecycle.drift.shift import Shift, listed
from trainworthy.lifecycle.drift.time_axis import Axis, axis_of
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS, CheckResult
from trainworthy.lifecycle.spec.split import SplitSpec

# A fifth fewer or more rows a day.
VOLUME_FLOOR = 0.22
_LEAST_ROWS = 5 * FEWEST_ROWS
_SHOWN = 200


def drift_check(written: SplitFiles, contract: Contract, spec: SplitSpec) -> CheckResult:
    """Judges the benchmark's rows against the rows before it (without time: against training), column by column."""
    axis = axis_of(written, spec)
    short = _shortage(axis)
    reader, rows, findings, beyond = Reader(written, axis), [], [] if short else _volume(axis), []
    for name in drift_columns(contract):
        column, values = contract.column(name), reader.read(name)
        row = _figures(name, values.counts, axis)
        if not short:
            whole, shifts = column_findings(column, values)
            row |= {"threshold": whole.threshold}
            findings += shifts
            if isinstance(values, Categories) and not shifts and (gone := ended(values)):
                row |= {"ended": f"{len(gone)} values" if column.sensitive else gone}
        if column.allowed_drift is not None and row["psi"] > column.allowed_drift:
            beyond.append(_beyond(name, row["psi"], column.allowed_drift, axis))
        rows.append(row)
    return _result(axis, short, [*beyond, *sorted(findings, key=lambda finding: -finding.excess)], len(beyond), rows)


def drift_columns(contract: Contract) -> tuple[str, ...]:
    """What a model reads and learns from: features, the label's column and weights.

    Files are left out: each row has its own path, and what they show, answers and labels tell of.
    """
    roles = ("feature", "target_source", "target", "weight")
    return tuple(column.name for column in contract.columns if column.role in roles and column.file is None)


def _shortage(axis: Axis) -> str:
    """Why history can't say what is usual, in words; empty if it can."""
    blocks = axis.history / axis.length
    if blocks < MINIMUM_BLOCKS:
        too_few = "can't tell what is usual"
        if axis.in_time:
            least = math.ceil(MINIMUM_BLOCKS * axis.length)
            return f"{axis.history} days before the benchmark's {axis.length}: fewer than {least} {too_few}"
        return f"training has {blocks:.2g} times the benchmark's rows: less than {MINIMUM_BLOCKS:g} times {too_few}"
    rows = int(axis.rows[axis.history :].sum())
    return f"the window has {rows} rows, fewer than {_LEAST_ROWS}" if rows < _LEAST_ROWS else ""


def _figures(name: str, counts: Any, axis: Axis) -> dict[str, Any]:
    """PSI, Jensen–Shannon and null shares of the window against all rows before it."""
    before, now = counts[: axis.history].sum(0), counts[axis.history :].sum(0)
    return {
        "column": name,
        "psi": round(float(psi(now, before)), 4),
        "jensen_shannon": round(float(jensen_shannon(now, before)), 5),
        "null_share": round(float(shares(now)[-1]), 4),
        "null_share_before": round(float(shares(before)[-1]), 4),
    }


def _volume(axis: Axis) -> list[Shift]:
    """Rows a day. Without time there is none: a split's size is declared."""
    if not axis.in_time:
        return []
    counts = np.stack([axis.rows, np.ones(axis.count)], axis=1)
    change = judge(volume_change, running_total(counts), axis.history, axis.length, VOLUME_FLOOR)
    if change.excess <= 1:
        return []
    now, before = axis.rows[axis.history :].mean(), axis.rows[: axis.history].mean()
    return [
        Shift(
            column=None, statistic="volume_log_ratio", observed=change.observed, threshold=change.threshold,
            threshold_from=f"{change.source}, against {change.against}", where=axis.span(change.start, change.length),
            cause=f"{now:,.0f} rows a day, where {before:,.0f} were: "
            + ("rows are lost" if now < before else "rows come twice, or a source was added"),
            fix="ask the source how many rows it sent",
        )
    ]  # fmt: skip


def _beyond(name: str, observed: float, limit: float, axis: Axis) -> Shift:
    return Shift(
        column=name, statistic="psi", observed=observed, threshold=limit,
        threshold_from="allowedDrift in contract.yaml, against all rows before",
        where=axis.span(axis.history, axis.length),
        cause="the declared limit is exceeded", fix="correct the source, or raise allowedDrift if the change is meant",
    )  # fmt: skip


def _result(axis: Axis, short: str, findings: list[Shift], beyond: int, rows: list[dict[str, Any]]) -> CheckResult:
    severity, details = "error" if beyond else "warning", (*map(_finding_row, findings), *_passed(rows, findings))
    window = f"{axis.span(axis.history, axis.length)} against {axis.history} {axis.noun} before"
    if not axis.in_time:
        window = f"benchmark against training, {axis.history} {axis.noun}"
    if findings:
        named = "; ".join(_sentence(finding) for finding in findings[:5])
        more = f"; and {len(findings) - 5} more" if len(findings) > 5 else ""
        fix = findings[0].fix if len(findings) == 1 else "look at each column below: its row says what to do"
        return CheckResult(
            name="drift", status="fail", severity=severity, observed=len(findings), threshold=0,
            evidence=f"{window}: {named}{more}{_ended(rows)}", fix=fix, details=details,
        )  # fmt: skip
    if short:
        fix = "use a dataset version with a longer history, or a shorter benchmark window"
        if not axis.in_time:
            fix = "use a dataset version with more rows, or give the benchmark a smaller share"
        return CheckResult(
            name="drift", status="insufficient", severity="warning", evidence=short, fix=fix, details=details
        )
    evidence = f"{len(rows)} columns, {window}: nothing left what history shows{_ended(rows)}"
    return CheckResult(
        name="drift", status="pass", severity="warning", observed=0, threshold=0, evidence=evidence, details=details
    )


def _ended(rows: list[dict[str, Any]]) -> str:
    """Values that disappeared before the newest window: listed for information, no finding."""
    by_column = [
        f"{row['column']}: {row['ended']}"
        if isinstance(row["ended"], str)
        else f"{row['column']}: {listed([f'{name} ({day})' for name, day in row['ended'].items()], hidden=False)}"
        for row in rows
        if "ended" in row
    ]
    return "".join(f"; ended before, by last day: {column_text}" for column_text in by_column)


def _sentence(finding: Shift) -> str:
    """A finding in a few words; its row has the rest."""
    size = f"{finding.statistic.replace('_', ' ')} {finding.observed:.3g}, allowed {finding.threshold:.3g}"
    return f"{finding.column or 'rows'} ({size}, {finding.where}): {finding.cause}"


def _finding_row(finding: Shift) -> dict[str, Any]:
    values = finding.model_dump() | {"column": finding.column or "(rows)", "status": "fail"}
    return values | {"observed": round(finding.observed, 4), "threshold": round(finding.threshold, 4)}


def _passed(rows: list[dict[str, Any]], findings: list[Shift]) -> list[dict[str, Any]]:
    """The figures of the columns without a finding, the greatest PSI first."""
    flagged = {finding.column for finding in findings}
    rest: list[dict[str, Any]] = [row | {"status": "pass"} for row in rows if row["column"] not in flagged]
    return sorted(rest, key=lambda row: -row["psi"])[:_SHOWN]


# The absence is this many times longer than every pause before it: a value of one season pauses each year.
_BEYOND_PAUSES = 3


def ended(values: Categories) -> dict[str, str]:
    """Values and their last day, the most frequent first; {} where units are no days or values are many."""
    axis, own_bins = values.axis, values.kept
    if not axis.in_time or len(own_bins) > CODE_LIST:
        return {}
    counts = values.counts[:, : len(own_bins)]
    last = {values.names[code]: _last_unit(np.flatnonzero(rows), rows.sum(), axis.history, axis.length, axis.count)
            for code, rows in zip(own_bins, counts.T, strict=True)}  # fmt: skip
    return {name: axis.names[unit] for name, unit in last.items() if unit is not None}


def _last_unit(held: np.ndarray, rows: int, history: int, window: int, count: int) -> int | None:
    """The last unit of a value that most of history held, if it has ended; `held` are the units with rows of it."""
    if not len(held) or held[0] > history / 4 or held[-1] < history / 2:
        return None
    absent, pause = count - 1 - held[-1], int(np.diff(held).max(initial=1))
    missed = rows / (held[-1] + 1) * absent
    return int(held[-1]) if absent >= max(window, _BEYOND_PAUSES * pause) and missed >= FEWEST_ROWS else None
