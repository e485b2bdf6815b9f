"""Whether a model has seen nothing of the benchmark: by time, by the rows themselves, or by how rows are assigned.

Whether the benchmark begins late enough after everything that the models have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.data.split.hashing import HASH_VERSION
from trainworthy.lifecycle.data.split.overlap import disjoint_columns, shared_values
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.protocol.records import Snapshot
from trainworthy.lifecycle.spec.split import GroupSplit, HashSplit, SplitSpec, Windows

MODEL_SPLITS = ("training", "validation", "calibration")


def candidate_overlap(
    snapshot: Snapshot, spec: SplitSpec, files: SplitFiles, primary_key: Sequence[str]
) -> CheckResult:
    """Whether the benchmark is apart from all that the snapshot's own model saw, by its times and its written rows."""
    checks: list[CheckResult] = []
    if isinstance(spec, Windows):
        ends = {name: snapshot.splits[name].end for name in ("training", "calibration")}
        checks.append(window_check(ends, snapshot.splits["benchmark"].start, spec.gap))
    columns = disjoint_columns(spec, primary_key)
    if columns:
        checks.append(_written_overlap(files, columns))
    return next((check for check in checks if check.status != "pass"), checks[-1])


def _written_overlap(files: SplitFiles, columns: Sequence[str]) -> CheckResult:
    benchmark = files.read("benchmark", columns)
    shared = [
        line
        for name in MODEL_SPLITS
        for line in shared_values({name: files.read(name, columns), "benchmark": benchmark}, columns)
    ]
    evidence = "; ".join(shared) or f"no split shares a value of {', '.join(columns)} with the benchmark"
    fix = "materialize the snapshot again" if shared else ""
    return holds(NAME, not shared, required=True, evidence=evidence, fix=fix)


def champion_overlap(tags: Mapping[str, str], snapshot: Snapshot, spec: SplitSpec, contract: Contract) -> CheckResult:
    """Whether a champion, by the tags that trained_on_tags gave it, saw nothing of this snapshot's benchmark.

    In time: it ends before. By hash or group: the same columns, salt and shares send a row or group to the same split
    in every version. Exact shares move rows as others are added, so there only the very same snapshot will do.
    """
    if isinstance(spec, Windows):
        return window_check(champion_ends(tags), snapshot.splits["benchmark"].start, spec.gap)
    if tags.get("snapshot_content") == snapshot.content_hash:
        return holds(NAME, True, required=True, evidence="the champion was trained on this very snapshot")
    rule, theirs = assignment(spec, contract), tags.get("split_rule", "")
    if rule is None:
        evidence = f"by: {spec.by} keeps exact shares, so rows of this benchmark were training rows in other versions"
        fix = "use by: hash, which never moves a row: its models can be compared across versions"
    else:
        evidence = f"the champion's rows were assigned by {theirs or 'another kind of split'}, these by {rule}"
        fix = "restore columns, salt and shares as they were for the champion, or give the use case a new name"
    same = rule is not None and rule == theirs
    same_evidence = f"the champion's rows were assigned by the same rule: {rule}"
    return holds(NAME, same, required=True, evidence=same_evidence if same else evidence, fix="" if same else fix)


def champion_ends(tags: Mapping[str, str]) -> dict[str, str]:
    """The last day that the champion saw, by split; empty text where its tags do not say."""
    return {
        "champion's training": tags.get("trained_until", ""),
        "champion's calibration": tags.get("calibrated_until", ""),
    }


def trained_on_tags(snapshot: Snapshot, spec: SplitSpec, contract: Contract) -> dict[str, str]:
    """What champion_overlap must know of a model later."""
    return {
        "trained_until": snapshot.splits["training"].end,
        "calibrated_until": snapshot.splits["calibration"].end,
        "snapshot_content": snapshot.content_hash,
        **({} if (rule := assignment(spec, contract)) is None else {"split_rule": rule}),
    }


def assignment(spec: SplitSpec, contract: Contract) -> str | None:
    """All that decides in which split a row or group lies, whatever other rows there are; None if they matter.

    The types of the columns belong to it: a number written as text has another hash.
    """
    if not isinstance(spec, GroupSplit | HashSplit):
        return None
    columns = disjoint_columns(spec, contract.primary_key)
    rule = {
        "by": spec.by,
        "columns": {name: contract.column(name).logical_type for name in columns},
        "salt": spec.salt,
        "shares": spec.shares.model_dump(),
        "hash_version": HASH_VERSION,
    }
    return canonical_json(rule).decode()


NAME = "benchmark_window"


def window_check(ends: Mapping[str, str], benchmark_start: str, embargo: str) -> CheckResult:
    """Pass if the embargo lies between each split in `ends` (name → last ISO timestamp) and the benchmark.

    An embargo of days (`1d`) counts whole days, those of each timestamp's own zone, as in data/split/by_time.py: where
    clocks go forward, the split's day between Saturday 23:50 and Monday 0:00 has 0.965 of 24 hours. One of hours
    (`36h`) counts elapsed time. A timestamp that cannot be read is an error.
    A benchmark that lies inside or before the training period flatters: +0.0096 log-loss on flights.
    """
    fix = "roll the benchmark to rows that are newer than the models' data, or train on older rows"
    try:
        gaps = {name: _gap(end, benchmark_start, embargo) for name, end in ends.items()}
    except (TypeError, ValueError) as error:
        return CheckResult(
            name=NAME, status="error", required=True, evidence=f"a time could not be read: {error}", fix=fix
        )
    if not gaps:
        evidence = f"no splits and an embargo of {embargo}: nothing to compare"
        return CheckResult(name=NAME, status="error", required=True, evidence=evidence, fix=fix)
    nearest, required_gap = min(gaps, key=lambda name: gaps[name]), int(embargo[:-1])
    unit = "whole days" if embargo.endswith("d") else "hours"
    return CheckResult(
        name=NAME,
        status="pass" if gaps[nearest] >= required_gap else "fail",
        required=True,
        observed=gaps[nearest],
        threshold=required_gap,
        evidence=f"{nearest} ends {ends[nearest]}, the benchmark starts {benchmark_start} (in {unit} between)",
        fix=fix,
    )


def _gap(end: str, start: str, embargo: str) -> float:
    """What lies between two ISO timestamps: whole days for an embargo of days, else hours."""
    if embargo.endswith("d"):
        return (_day(start) - _day(end)).days - 1
    return (datetime.fromisoformat(start) - datetime.fromisoformat(end)).total_seconds() / 3600


def _day(value: str) -> date:
    """The calendar day of an ISO timestamp in its own zone."""
    return datetime.fromisoformat(value).date()
