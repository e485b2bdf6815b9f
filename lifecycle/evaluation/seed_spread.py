"""The spread between seeds in the interval of a gain.

Of several full trainings one ships, and its gain is that of its seed, too. Promoting it says that the recipe is better
than what is there, so the interval reckons with both: the chance of the benchmark's rows, and how far another training
of the same recipe would lie. Their variances are added, with Satterthwaite's degrees of freedom (1946). The reference
is taken as it is: it is one model, in service or fitted without chance.

The spread is that of the calibrated answers, as the gain is: seeds that differ by a temperature alone are one artifact.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from trainworthy.lifecycle.protocol.figures import Comparison, Estimate, SeedSpread
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.wording import decimals_of, metric_name

_QUANTILE = 0.975


def with_seeds(comparison: Comparison, trained: Sequence[SeedResult], *, of_decisions: bool = False) -> Comparison:
    """The comparison with the spread of the seeds in its interval; as it is where only one was trained.

    `trained` are the trainings of the stage that the candidate comes from. Where the metric of one of them is not
    known, as of what a declared decision makes of answers (`of_decisions`), the interval stays that of the rows, and
    the spread says why. One of width 0 stays, too: the seeds' spread is
    not what the rows lack.
    """
    if len(trained) < 2:
        return comparison
    metric = comparison.metric
    known = [seed.validated[metric] for seed in trained if metric in seed.validated and not of_decisions]
    spread = SeedSpread(seeds=len(trained), sd=None, by_rows=comparison.gain)
    if len(known) < len(trained):
        lacking = f"{len(trained) - len(known)} of {len(trained)} seeds"
        of_what = "what they decide of" if of_decisions else "calibrated answers to"
        reason = f"{lacking} have no {metric_name(metric)} of {of_what} the validation rows"
        return comparison.model_copy(update={"seeds": spread.model_copy(update={"told": reason})})
    sd = statistics.stdev(known)
    if not comparison.gain.has_width:
        return comparison.model_copy(update={"seeds": spread.model_copy(update={"sd": sd})})
    return comparison.model_copy(
        update={"gain": _widened(comparison.gain, sd, len(known)), "seeds": spread.model_copy(update={"sd": sd})}
    )


def _widened(gain: Estimate, sd: float, seeds: int) -> Estimate:
    """Each side of the interval with the variance of one more training in it."""
    low, high = (_reach(side, sd, gain.groups, seeds) for side in (gain.value - gain.low, gain.high - gain.value))
    return gain.model_copy(
        update={
            "low": gain.value - low,
            "high": gain.value + high,
            "standard_error": math.hypot(gain.standard_error, sd),
            "method": "with_seeds",
            "made": f"{gain.made or 't by group'}; {_seed_text(gain, sd, seeds)}",
        }
    )


def _seed_text(gain: Estimate, sd: float, seeds: int) -> str:
    decimals = decimals_of(gain.value, gain.standard_error)
    without = f"[{gain.low:+,.{decimals}f}, {gain.high:+,.{decimals}f}]"
    return f"with the spread between {seeds} seeds, sd {sd:,.{decimals_of(sd, sd)}f}; without it {without}"


def _reach(side: float, sd: float, groups: int, seeds: int) -> float:
    """Half a 95 % interval from that of the rows, `side`, and the seeds' standard deviation."""
    from scipy.special import stdtrit

    by_rows, by_seeds = (side / float(stdtrit(groups - 1, _QUANTILE))) ** 2, sd**2
    if by_seeds == 0:
        return side
    degrees = (by_rows + by_seeds) ** 2 / (by_rows**2 / (groups - 1) + by_seeds**2 / (seeds - 1))
    return float(stdtrit(degrees, _QUANTILE)) * math.sqrt(by_rows + by_seeds)
