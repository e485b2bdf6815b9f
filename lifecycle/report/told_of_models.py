"""Tables of what is told of the candidate, and of the champion beside it: calibration, fairness, residuals."""

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
)
from trainworthy.lifecycle.protocol.records import EvaluationReport, Verdict
from trainworthy.lifecycle.report.formatting import estimate, number, with_method
from trainworthy.lifecycle.report.outcome import Records, found
from trainworthy.lifecycle.wording import count, metric_name, words

# What a reader takes in at once; the record holds all.
MOST_PARTS = 15
MOST_WORST = 10

Told = TypeVar("Told", Calibration, Disparity)


def _told(value: Estimate | None, *, sign: bool = False) -> str:
    return "not measured" if value is None else with_method(value, sign=sign)


def calibration_rows(report: EvaluationReport, champion: ModelFigures | None = None) -> list[tuple[str, ...]]:
    """Model, claim, rows, groups, debiased error, intercept, slope, and what could not be measured."""
    return [
        (
            one.model, one.claim, count(one.rows), count(one.groups), _told(one.error), _told(one.intercept, sign=True),
            _told(one.slope), "; ".join(one.reasons),
        )
        for one in _by_turns(report.calibration, champion.calibration if champion else ())
    ]  # fmt: skip


def fairness_rows(report: EvaluationReport, champion: ModelFigures | None = None) -> list[tuple[str, ...]]:
    """Model, column, claim, rate, lowest and highest value, difference, its limit, ratio, and what was left out."""
    fairness = (report.suite.declared.get("fairness") if report.suite else None) or {}
    limits = {rate: f"{limit:g}" for rate, limit in fairness.get("at_most_difference", {}).items()}
    return [
        (
            one.model, one.column, one.claim or "all rows", metric_name(one.rate), _of_value(one, one.lowest),
            _of_value(one, one.highest), _told(one.difference), limits.get(one.rate, "none"),
            _told(one.ratio) if one.ratio else "", _left_out(one),
        )
        for one in _by_turns(report.fairness, champion.fairness if champion else ())
    ]  # fmt: skip


def _by_turns(candidate: Sequence[Told], champion: Sequence[Told]) -> list[Told]:
    """Each of the candidate's with the champion's of the same below it, and what only the champion has."""
    left = list(champion)
    found: list[Told] = []
    for one in candidate:
        same = [other for other in left if _about(other) == _about(one)]
        left = [other for other in left if other not in same]
        found += [one, *same]
    return found + left


def _about(one: Calibration | Disparity) -> tuple[str, ...]:
    return (one.claim,) if isinstance(one, Calibration) else (one.column, one.claim, one.rate)


def _of_value(disparity: Disparity, name: str) -> str:
    """A value with its rate, rows and groups."""
    found = next((one for one in disparity.values if one.value == name and one.rate is not None), None)
    if found is None or found.rate is None:
        return ""
    return f"{name}: {number(found.rate.value)} ({count(found.rows)} rows, {count(found.groups)} groups)"


def _left_out(disparity: Disparity) -> str:
    """Values without a rate, and why there is no difference."""
    small = [f"{one.value} ({one.reason})" for one in disparity.values if one.rate is None]
    others = disparity.other_values
    more = f"{others} more values of {count(disparity.other_rows)} rows" if others else ""
    return "; ".join(one for one in (disparity.reason, *small, more) if one)


def worst_parts(residuals: Residuals) -> list[tuple[str, LossPart]]:
    """Parts whose gain over the best baseline is least, with what they are by."""
    parts = [(axis.by, part) for axis in residuals.axes for part in axis.parts if part.gain is not None]
    return sorted(parts, key=lambda one: one[1].gain.value if one[1].gain else 0.0)[:MOST_PARTS]


def part_rows(residuals: Residuals, champion: ModelFigures | None = None) -> list[tuple[str, ...]]:
    """By what, part, rows, groups, mean loss, gain over the best baseline, and the champion's mean loss.

    Parts by the answer are not the champion's: they are by its own.
    """
    axes = champion.residuals.axes if champion and champion.residuals else ()
    known = {(axis.by, part.name): part.loss for axis in axes for part in axis.parts}
    return [
        (
            words(by), part.name, count(part.rows), count(part.groups), _told(part.loss), _told(part.gain, sign=True),
            *(["–" if f"{by} ".startswith("answer ") else _told(known.get((by, part.name)))] if champion else []),
        )
        for by, part in worst_parts(residuals)
    ]  # fmt: skip


def in_words(residuals: Residuals) -> tuple[str, ...]:
    """What the losses say beside their table."""
    told = [
        f"The candidate's {metric_name(residuals.loss)} by parts of the rows, and its gain over the best baseline, "
        f"{words(residuals.baseline)}. Of so many parts some lie apart by chance alone."
    ]
    alike = residuals.autocorrelation
    if alike is not None:
        told.append(
            f"Gains of neighbouring groups correlate by {number(alike.lag_one, 2)}. "
            + (
                f"An interval that reckons with it is {number(alike.factor, 2)} times as wide: "
                f"{estimate(alike.widened, sign=True)} in the place of {estimate(alike.gain, sign=True)}."
                if alike.factor > 1
                else "That makes no interval too narrow."
            )
        )
    if residuals.worst:
        told.append(f"Rows of the greatest loss: {_rows([one.row for one in residuals.worst[:MOST_WORST]])}.")
    if residuals.other_features:
        told.append(f"{residuals.other_features} more features, by which the loss differs less, are not kept.")
    return (*told, *residuals.reasons)


def _rows(places: Sequence[int]) -> str:
    return ", ".join(map(str, places))


def spots_of(records: Records) -> tuple[BlindSpot, ...]:
    """Blind spots in the order in which they were found; a verdict against a champion knows its excess, too."""
    verdict, report = found(records, "promotion", Verdict), found(records, "evaluation", EvaluationReport)
    return verdict.blind_spots if verdict and verdict.blind_spots else report.blind_spots if report else ()


def spots_in_words(spots: Sequence[BlindSpot]) -> str:
    """How many blind spots were found and confirmed, and what the table's figures are."""
    confirmed = sum(spot.confirmed for spot in spots)
    return (
        f"{len(spots)} found in some of the groups, {confirmed} of them confirmed in the others. "
        "The excess is the candidate's mean loss inside less outside, above what the baselines' losses on them let "
        "expect; the part expected is what is hard for the baselines, too. It decides nothing."
    )


def spot_rows(spots: Sequence[BlindSpot]) -> list[tuple[str, ...]]:
    """Number, rule, whether it is confirmed, rows, groups, share, excess, expected part, champion's excess, rows."""
    return [
        (
            str(place), spot.rule, "yes" if spot.confirmed else "no", count(spot.rows), count(spot.groups),
            f"{spot.share:.1%}", _told(spot.excess, sign=True), f"{spot.expected:+.4f}", _of_champion(spot),
            ", ".join(map(str, spot.examples)),
        )
        for place, spot in enumerate(spots, start=1)
    ]  # fmt: skip


def _of_champion(spot: BlindSpot) -> str:
    return "not asked" if spot.champion is None else estimate(spot.champion, sign=True)
