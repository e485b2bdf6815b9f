"""The candidate's blind spots on the benchmark: its row losses held against the baselines', and what is warned of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainworthy.lifecycle.evaluation.blind_spots import BlindSpots, blind_spots
from trainworthy.lifecycle.evaluation.comparison import row_weights
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.tasks.kind import JudgedLosses, Kind, from_columns, statistic_columns

if TYPE_CHECKING:
    import pandas as pd

NAME = "blind_spots"
# What a check's evidence names; the record has all.
_MOST_NAMED = 3


def benchmark_spots(
    predictions: pd.DataFrame,
    features: pd.DataFrame,
    cuts: Mapping[str, tuple[float, ...]],
    kind: Kind,
    baselines: Sequence[str],
    *,
    model: str = "candidate",
    champion: str = "champion",
) -> BlindSpots:
    """Where `model` loses more than the baselines let expect, by columns of `features`, none of them sensitive.

    `predictions` has row, group, label and the statistics of the models, `features` the same rows in the same order;
    `cuts` are slice_levels.training_cuts of the training rows. The champion's are used where the table has them.
    """
    labels, numbers = kind.checked_labels(predictions["label"]), predictions["row"].to_numpy()
    there = set(statistic_columns(kind, champion)) <= set(predictions.columns)

    def losses(name: str) -> JudgedLosses:
        return kind.judged_losses(labels, from_columns(kind, name, predictions))

    mine = losses(model)
    spots = blind_spots(
        features,
        mine.losses,
        predictions["group"],
        cuts,
        references=[losses(name).losses for name in baselines],
        champion=losses(champion).losses if there else None,
        weights=mine.weights(row_weights(predictions)),
    )
    named = [spot.model_copy(update={"examples": tuple(numbers[[*spot.examples]].tolist())}) for spot in spots.spots]
    return replace(spots, spots=tuple(named))


def blind_spots_check(spots: BlindSpots) -> CheckResult:
    """Warns of confirmed blind spots; it never stops a step and decides nothing."""
    if spots.insufficient:
        return CheckResult(
            name=NAME, status="not_applicable", severity="warning", evidence=f"not searched: {spots.insufficient}",
            fix="give the benchmark more groups, or columns with values that come back",
        )  # fmt: skip
    confirmed = [spot for spot in spots.spots if spot.confirmed]
    named = "; ".join(f"{spot.rule} ({spot.rows:,} rows, {spot.excess.value:+.3g})" for spot in confirmed[:_MOST_NAMED])
    more = f"; {len(confirmed) - _MOST_NAMED} more" if len(confirmed) > _MOST_NAMED else ""
    evidence = f"{len(confirmed)} confirmed, by mean loss above what the baselines let expect: {named}{more}"
    return holds(
        NAME,
        not confirmed,
        severity="warning",
        observed=len(confirmed),
        threshold=0,
        evidence=evidence if confirmed else f"none confirmed over pairs of {len(spots.columns)} columns",
        fix="look at the rows; declare the rule as a slice (where:) with a bound, so that it decides from now on",
    )
