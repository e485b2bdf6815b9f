"""The table of slices that decide: how each stands to what is declared for it."""

from __future__ import annotations

from collections.abc import Sequence

from trainworthy.lifecycle.protocol.figures import SliceResult
from trainworthy.lifecycle.protocol.records import EvaluationReport, Verdict
from trainworthy.lifecycle.report.formatting import number
from trainworthy.lifecycle.report.outcome import Records, record_of
from trainworthy.lifecycle.wording import count, metric_name


def slices_of(records: Records) -> tuple[SliceResult, ...]:
    """Slices that decide, by the verdict where there is one; what is broken first, then what was not shown."""
    verdict, report = record_of(records, "promotion", Verdict), record_of(records, "evaluation", EvaluationReport)
    slices = verdict.slices if verdict and verdict.slices else report.slices if report else ()
    order = {"broken": 0, "not_shown": 1, "kept": 2, "not_asked": 3}
    return tuple(sorted(slices, key=lambda item: min(order[item.bound], order[item.champion])))


def in_words(slices: Sequence[SliceResult]) -> str:
    """How many of the slices that decide hold."""
    standings = [{item.bound, item.champion} for item in slices]
    broken = sum("broken" in states for states in standings)
    unshown = sum("not_shown" in states and "broken" not in states for states in standings)
    kept = sum("kept" in states and not states & {"broken", "not_shown"} for states in standings)
    total = f"{len(slices)} slice{'s decide' if len(slices) != 1 else ' decides'} beside all rows"
    if not broken + unshown + kept:
        return f"{total}; a verdict says how they stand."
    rest = len(slices) - kept - unshown - broken
    unasked = f", {rest} not asked without a champion" if rest else ""
    return f"{total}: {kept} kept, {unshown} not shown by so few rows, {broken} broken{unasked}."


def standing(item: SliceResult) -> str:
    """How a slice stands to its bound and to the champion."""
    words = {"kept": "kept", "not_shown": "not shown", "broken": "broken"}
    both = (("bound", item.bound), ("champion", item.champion))
    parts = [f"{name}: {words[standing]}" for name, standing in both if standing in words]
    return "; ".join(parts) or "not judged"


def rule(item: SliceResult, primary: str) -> str:
    """What is declared for a slice."""
    declared, rules = item.declared, []
    for word, bound in (("at most", declared.at_most), ("at least", declared.at_least)):
        if bound is not None:
            rules.append(f"{metric_name(item.metric)} {word} {bound:g}")
    if declared.champion_margin is not None:
        rules.append(f"{metric_name(primary)} worse than the champion's by {declared.champion_margin:g} at most")
    which = [declared.where or declared.rows or ""] if item.slice not in (declared.where, declared.rows) else []
    if item.unmatched:
        which.append(f"{count(item.unmatched)} keys of the file are not in the benchmark")
    notes = ", ".join(filter(None, which))
    return "; ".join(rules) + (f" ({notes})" if notes else "")


def detects(item: SliceResult) -> str:
    """The smallest difference that the slice's rows would show in four of five benchmarks like this one."""
    measured = item.estimate if item.declared.champion_margin is None else item.gain or item.estimate
    return number(measured.detectable, 3) if measured else ""
