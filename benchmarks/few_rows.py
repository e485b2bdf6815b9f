"""How often intervals of few rows hold the truth; benchmarks/evidence.py prints these tables.

Rows of a group are drawn with an effect of their group (beta-binomial), so that two of them resemble each other by the
intraclass correlation. Shares of one model: t by group against the exact interval of effective rows. Gains in decisions
that differ on few rows: t against Tango's score interval and the Bayesian bootstrap over groups (Rubin 1981). Gains in
losses: t against that bootstrap. The Bayesian paired t of Benavoli and others (2017) is the t by group itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.tasks.few_rows import difference_of_few, share_interval
from trainworthy.lifecycle.tasks.interval import jackknife_estimate, mean_estimate, without_spread

GROUPS, ROWS, SHARES = (8, 15, 30), (3, 10), (0.02, 0.1, 0.5)
# Of rows of one group: independent, and as much alike as two flights of a bad day.
CORRELATIONS = (0.0, 0.3)
DIFFERING = (0.03, 0.1)
BOOTSTRAPS = 1_000
_LOSSES: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "t with 3 degrees of freedom": lambda random, shape: random.standard_t(3, shape),
    "lognormal": lambda random, shape: random.lognormal(0, 1, shape) - np.exp(0.5),
}


def few_rows(repetitions: int) -> dict[str, float]:
    """Print the tables; the figures are the worst shares of intervals that missed, `few_<what>_<method>`."""
    random = np.random.default_rng(3)
    return _shares(random, repetitions) | _decisions(random, repetitions) | _losses(random, repetitions)


def _shares(random: np.random.Generator, repetitions: int) -> dict[str, float]:
    heads = "  ".join(f"{method} {one:g}".rjust(9) for one in CORRELATIONS for method in ("t", "exact"))
    print(f"\n{'shares, few rows, by correlation':34} {heads}")
    missed: dict[str, list[float]] = {}
    for share in SHARES:
        for groups in GROUPS:
            for rows in ROWS:
                cells = []
                for correlation in CORRELATIONS:
                    hits = random.binomial(rows, _by_group(random, share, correlation, (repetitions, groups)))
                    found = [_intervals(one.astype(float), rows) for one in hits]
                    for place, method in enumerate(("t", "exact")):
                        held = _held([one[place] for one in found], share)
                        missed.setdefault(f"few_shares_{_key(correlation)}_{method}", []).append(1 - held)
                        cells.append(f"{held:9.3f}")
                print(f"{f'{share:g}, {groups} groups of {rows} rows':34} {'  '.join(cells)}", flush=True)
    return {name: max(values) for name, values in missed.items()}


def _intervals(hits: np.ndarray, rows: int) -> tuple[Estimate, Estimate]:
    """By t, or the bound of so many groups where all are alike, and as it is done; of hits of each group, `(G,)`."""
    sizes = np.full(len(hits), float(rows))
    plain = mean_estimate(hits / rows, np.arange(len(hits)))
    by_t = plain if plain.has_width else without_spread(plain, 1.0, len(hits))
    return by_t, share_interval(plain, hits, sizes, int(sizes.sum()))


def _decisions(random: np.random.Generator, repetitions: int) -> dict[str, float]:
    methods = ("t", "Tango", "bootstrap")
    heads = "  ".join(f"{method} {one:g}".rjust(13) for one in CORRELATIONS for method in methods)
    print(f"\n{'decisions that differ, worse by half':34} {heads}")
    missed: dict[str, list[float]] = {}
    for share in DIFFERING:
        for groups in GROUPS:
            for rows in ROWS:
                cells = []
                for correlation in CORRELATIONS:
                    shape = (repetitions, groups)
                    differ = random.binomial(rows, _by_group(random, share, correlation, shape))
                    better = random.binomial(differ, _by_group(random, 0.25, correlation, shape))
                    found = [_gains(one, other, rows, random) for one, other in zip(better, differ, strict=True)]
                    for place, method in enumerate(methods):
                        held = _held([one[place] for one in found], -share / 2)
                        missed.setdefault(f"few_decisions_{_key(correlation)}_{method.lower()}", []).append(1 - held)
                        cells.append(f"{held:13.3f}")
                print(f"{f'{share:g} differ, {groups} groups of {rows} rows':34} {'  '.join(cells)}", flush=True)
    return {name: max(values) for name, values in missed.items()}


def _gains(
    better: np.ndarray, differ: np.ndarray, rows: int, random: np.random.Generator
) -> tuple[Estimate, Estimate, Estimate]:  # fmt: skip
    worse, groups = differ - better, len(better)
    means = (better - worse) / rows
    plain = mean_estimate(means, np.arange(groups))
    few = difference_of_few(plain, better, worse, np.full(groups, float(rows)), groups * rows)
    return plain, few, _bootstrap(means, random)


def _losses(random: np.random.Generator, repetitions: int) -> dict[str, float]:
    print(f"\n{'gains in losses, groups of 3 rows':34} {'t':>9}  {'bootstrap':>9}")
    missed: dict[str, list[float]] = {}
    for name, drawn in _LOSSES.items():
        for groups in GROUPS:
            held = {"t": 0, "bootstrap": 0}
            for _ in range(repetitions):
                means = drawn(random, (groups, 3)).mean(axis=1) + 0.5 * random.normal(size=groups)
                for method, found in (
                    ("t", mean_estimate(means, np.arange(groups))),
                    ("bootstrap", _bootstrap(means, random)),
                ):
                    held[method] += found.low <= 0 <= found.high
            for method, count in held.items():
                missed.setdefault(f"few_losses_{method}", []).append(1 - count / repetitions)
            shares = "  ".join(f"{count / repetitions:9.3f}" for count in held.values())
            print(f"{f'{name}, {groups} groups':34} {shares}", flush=True)
    return {name: max(values) for name, values in missed.items()}


def _bootstrap(means: np.ndarray, random: np.random.Generator) -> Estimate:
    """Percentiles of the Bayesian bootstrap over groups of equal size."""
    drawn = random.dirichlet(np.ones(len(means)), BOOTSTRAPS) @ means
    low, high = np.quantile(drawn, (0.025, 0.975))
    value = float(means.mean())
    left_out = (means.sum() - means) / (len(means) - 1)
    return jackknife_estimate(value, left_out).model_copy(update={"low": float(low), "high": float(high)})


def _by_group(
    random: np.random.Generator, share: float, correlation: float, shape: tuple[int, int]
) -> np.ndarray:  # fmt: skip
    """Each group's own share."""
    if correlation == 0:
        return np.full(shape, share)
    alike = (1 - correlation) / correlation
    return random.beta(share * alike, (1 - share) * alike, shape)


def _held(found: list[Estimate], truth: float) -> float:
    """Share of intervals that hold the truth; one without width holds none."""
    return sum(one.has_width and one.low <= truth <= one.high for one in found) / len(found)


def _key(correlation: float) -> str:
    return "alike" if correlation else "independent"
