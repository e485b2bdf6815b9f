"""Tables of what is told of the candidate, and of the champion beside it.

Of calibration, fairness and residuals, of what each takes to be served, and of the slices that decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from trainworthy.lifecycle.protocol.figures import (
    BlindSpot,
    Calibration,
    Disparity,
    Estimate,
    LossPart,
    ModelFigures,
    Residuals,
    SliceResult,
)
from trainworthy.lifecycle.protocol.records import EvaluationReport, Verdict
from trainworthy.lifecycle.protocol.serving import UNITS, ServingFigure
from trainworthy.lifecycle.report.formatting import capital, estimate, number, with_method
from trainworthy.lifecycle.report.outcome import Records, record_of
from trainworthy.lifecycle.wording import count, metric_name, words

# What a reader takes in at once; the record holds all.
MOST_PARTS = 15
MOST_WORST = 10

ModelRow = TypeVar("ModelRow", Calibration, Disparity)


def _estimate_text(value: Estimate | None, *, sign: bool = False) -> str:
    return "not measured" if value is None else with_method(value, sign=sign)


def calibration_rows(report: EvaluationReport, champion: ModelFigures | None = None) -> list[tuple[str, ...]]:
    """Model, claim, rows, groups, debiased error, intercept, slope, and what could not be measured."""
    return [
        (
            calibration.model,
            calibration.claim,
            count(calibration.rows),
            count(calibration.groups),
            _estimate_text(calibration.error),
            _estimate_text(calibration.intercept, sign=True),
            _estimate_text(calibration.slope),
            "; ".join(calibration.reasons),
        )
        for calibration in _by_turns(report.calibration, champion.calibration if champion else ())
    ]


def fairness_rows(report: EvaluationReport, champion: ModelFigures | None = None) -> list[tuple[str, ...]]:
    """Model, column, claim, rate, lowest and highest value, difference, its limit, ratio, and what was left out."""
    fairness = (report.suite.declared.get("fairness") if report.suite else None) or {}
    limits = {rate: f"{limit:g}" for rate, limit in fairness.get("at_most_difference", {}).items()}
    return [
        (
            disparity.model,
            disparity.column,
            disparity.claim or "all rows",
            metric_name(disparity.rate),
            _of_value(disparity, disparity.lowest),
            _of_value(disparity, disparity.highest),
            _estimate_text(disparity.difference),
            limits.get(disparity.rate, "none"),
            _estimate_text(disparity.ratio) if disparity.ratio else "",
            _left_out(disparity),
        )
        for disparity in _by_turns(report.fairness, champion.fairness if champion else ())
    ]


def _by_turns(candidate: Sequence[ModelRow], champion: Sequence[ModelRow]) -> list[ModelRow]:
    """Each of the candidate's with the champion's of the same below it, and what only the champion has."""
    left = list(champion)
    rows: list[ModelRow] = []
    for row in candidate:
        same = [other for other in left if _about(other) == _about(row)]
        left = [other for other in left if other not in same]
        rows += [row, *same]
    return rows + left


def _about(row: Calibration | Disparity) -> tuple[str, ...]:
    return (row.claim,) if isinstance(row, Calibration) else (row.column, row.claim, row.rate)


def _of_value(disparity: Disparity, name: str) -> str:
    """A value with its rate, rows and groups."""
    value = next(
        (
            rate_of_value
            for rate_of_value in disparity.values
            if rate_of_value.value == name and rate_of_value.rate is not None
        ),
        None,
    )
    if value is None or value.rate is None:
        return ""
    return f"{name}: {number(value.rate.value)} ({count(value.rows)} rows, {count(value.groups)} groups)"


def _left_out(disparity: Disparity) -> str:
    """Values without a rate, and why there is no difference."""
    small = [f"{value.value} ({value.reason})" for value in disparity.values if value.rate is None]
    other_values = disparity.other_values
    more = f"{other_values} more values of {count(disparity.other_rows)} rows" if other_values else ""
    return "; ".join(text for text in (disparity.reason, *small, more) if text)


def worst_parts(residuals: Residuals) -> list[tuple[str, LossPart]]:
    """Parts whose gain over the best baseline is least, with what they are by."""
    parts = [(axis.by, part) for axis in residuals.axes for part in axis.parts if part.gain is not None]
    return sorted(parts, key=lambda named_part: named_part[1].gain.value if named_part[1].gain else 0.0)[:MOST_PARTS]


def part_rows(residuals: Residuals, champion: ModelFigures | None = None) -> list[tuple[str, ...]]:
    """By what, part, rows, groups, mean loss, gain over the best baseline, and the champion's mean loss.

    Parts by the answer are not the champion's: they are by its own.
    """
    axes = champion.residuals.axes if champion and champion.residuals else ()
    known = {(axis.by, part.name): part.loss for axis in axes for part in axis.parts}
    return [
        (
            words(by),
            part.name,
            count(part.rows),
            count(part.groups),
            _estimate_text(part.loss),
            _estimate_text(part.gain, sign=True),
            *(
                ["–" if f"{by} ".startswith("answer ") else _estimate_text(known.get((by, part.name)))]
                if champion
                else []
            ),
        )
        for by, part in worst_parts(residuals)
    ]


def in_words(residuals: Residuals) -> tuple[str, ...]:
    """What the losses say beside their table."""
    sentences = [
        f"The candidate's {metric_name(residuals.loss)} by parts of the rows, and its gain over the best baseline, "
        f"{words(residuals.baseline)}. Of so many parts some lie apart by chance alone."
    ]
    alike = residuals.autocorrelation
    if alike is not None:
        sentences.append(
            f"Gains of neighbouring groups correlate by {number(alike.lag_one, 2)}. "
            + (
                f"An interval that reckons with it is {number(alike.factor, 2)} times as wide: "
                f"{estimate(alike.widened, sign=True)} in the place of {estimate(alike.gain, sign=True)}."
                if alike.factor > 1
                else "That makes no interval too narrow."
            )
        )
    if residuals.worst:
        sentences.append(f"Rows of the greatest loss: {_rows([row.row for row in residuals.worst[:MOST_WORST]])}.")
    if residuals.other_features:
        sentences.append(f"{residuals.other_features} more features, by which the loss differs less, are not kept.")
    return (*sentences, *residuals.reasons)


def _rows(places: Sequence[int]) -> str:
    return ", ".join(map(str, places))


def spots_of(records: Records) -> tuple[BlindSpot, ...]:
    """Blind spots in the order in which they were found; a verdict against a champion knows its excess, too."""
    verdict, report = record_of(records, "promotion", Verdict), record_of(records, "evaluation", EvaluationReport)
    return verdict.blind_spots if verdict and verdict.blind_spots else report.blind_spots if report else ()


def spots_in_words(spots: Sequence[BlindSpot]) -> str:
    """How many blind spots were found and confirmed, and what the table's figures are."""
    confirmed = sum(spot.confirmed for spot in spots)
    return (
        f"{len(spots)} found in some of the groups, {confirmed} of them confirmed in the others. "
        "The excess is the candidate's mean loss inside less outside, above what the baselines' losses on them let "
        "expect; the part expected is what is hard for the baselines, too. It decides nothing. "
        f"Rows of the greatest loss: {'; '.join(_examples(place, spot) for place, spot in enumerate(spots, start=1))}."
    )


def _examples(place: int, spot: BlindSpot) -> str:
    return f"in {place}: {_rows(spot.examples)}"


def spot_rows(spots: Sequence[BlindSpot]) -> list[tuple[str, ...]]:
    """Number, rule, whether it is confirmed, rows, excess, expected part, champion's excess."""
    return [
        (
            str(place), spot.rule, "yes" if spot.confirmed else "no",
            f"{count(spot.rows)} in {count(spot.groups)} groups, {spot.share:.1%}",
            _estimate_text(spot.excess, sign=True), f"{spot.expected:+.4f}", _of_champion(spot),
        )
        for place, spot in enumerate(spots, start=1)
    ]  # fmt: skip


def _of_champion(spot: BlindSpot) -> str:
    return "not asked" if spot.champion is None else estimate(spot.champion, sign=True)


def serving_title(item: ServingFigure) -> str:
    """The quantity, as the head of a row."""
    return capital(item.title)


def serving_amount(item: ServingFigure, value: float | None) -> str:
    """A model's own figure."""
    return "not measured" if value is None else f"{value:.3g} {UNITS[item.quantity]}"


def serving_ratio(item: ServingFigure) -> str:
    """The ratio with its 95 % interval, or why there is none."""
    if item.ratio is None or item.low is None or item.high is None:
        return item.told or "not measured"
    return f"{item.ratio:.3g}" if item.low == item.high else f"{item.ratio:.3g} [{item.low:.3g} to {item.high:.3g}]"


def serving_limit(item: ServingFigure) -> str:
    """What is declared, and how the ratio stands to it."""
    if item.limit is None:
        return "no limit"
    words = {"pass": "kept", "fail": "broken", "insufficient": "not shown"}
    return f"{item.limit:g}: {words[item.standing]}"


def deciding_slices(records: Records) -> tuple[SliceResult, ...]:
    """Slices that decide, by the verdict where there is one; what is broken first, then what was not shown."""
    verdict, report = record_of(records, "promotion", Verdict), record_of(records, "evaluation", EvaluationReport)
    slices = verdict.slices if verdict and verdict.slices else report.slices if report else ()
    order = {"broken": 0, "not_shown": 1, "kept": 2, "not_asked": 3}
    return tuple(sorted(slices, key=lambda item: min(order[item.bound], order[item.champion])))


def deciding_in_words(slices: Sequence[SliceResult]) -> str:
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


def slice_standing(item: SliceResult) -> str:
    """How a slice stands to its bound and to the champion."""
    words = {"kept": "kept", "not_shown": "not shown", "broken": "broken"}
    both = (("bound", item.bound), ("champion", item.champion))
    parts = [f"{name}: {words[standing]}" for name, standing in both if standing in words]
    return "; ".join(parts) or "not judged"


def slice_rule(item: SliceResult, primary: str) -> str:
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


def slice_detects(item: SliceResult) -> str:
    """The smallest difference that the slice's rows would show in four of five benchmarks like this one."""
    measured = item.estimate if item.declared.champion_margin is None else item.gain or item.estimate
    return number(measured.detectable, 3) if measured else ""
