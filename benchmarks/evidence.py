"""What the intervals of an evaluation are worth: how often they hold the truth, and what they show.

Coverage: days are drawn from a population whose figure is known, and it is counted how often the 95 % interval by day
holds that figure. Flights: boosting, logistic regression and twenty networks of different seeds learn on January to
August of 2013, of the days from September on every third row is scored; these 122 days are the population. Beside it
drawn days whose rows share an effect of their day. Targets: 0.90 at 30 real days, 0.93 to 0.97 at 91 drawn ones. Beside
t by day: percentiles of a bootstrap over days, t that takes rows for independent, and windows of 30 days in a row, as a
benchmark is one.

A model against itself: two networks that differ by their seed, over 30 days: how often one is called better, by the
interval alone, and by one that has the spread of three further seeds in it. Target: 5 %. Power: a network against one
of another seed that is worse by 0.005 log loss over all days: how often 30 days show it. Target: 80 %.

Few rows: how often the intervals made for them hold the truth (benchmarks/few_rows.py), beside t by group.

    make bench NAME=evidence          about 3 minutes; ARGS=--short in seconds
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit, stdtrit
from scipy.stats import beta

from benchmarks.few_rows import few_rows
from benchmarks.flights_rows import labelled
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.calibration import debiased_error, intercept, slope
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.metric import estimate, group_sums, ratio, sums_without_each

CONTRACT = Path("use_cases/flight_delays/contract.yaml")
# About 300 rows a day are scored: an interval of days changes little with more of them.
EVERY, TRAINED_UNTIL = 3, "2013-08-31"
REAL_DAYS, DRAWN_DAYS = 30, 91
REPETITIONS, DRAWS, SEEDS, IMPROVEMENT = 2_000, 2_000, 20, 0.005
BOOTSTRAPS, FURTHER_SEEDS = 400, 3
POPULATION, ROWS_A_DAY = 4_000, 100
# Half a network and half a logistic regression: no network of one family any more, so it is told beside the target.
MIXED = "log-odds mixed with linear's"
# The stubs know "auto" alone.
BATCH_ROWS: Any = 1024
BINARY = kind_of(Target())


class Sums(NamedTuple):
    """A metric of sums over days. `squares` has the sum of squares of what a mean is of, where it is a mean."""

    by_day: np.ndarray
    of_sums: Callable[[np.ndarray], np.ndarray]
    is_mean: bool = False
    squares: np.ndarray | None = None

    @property
    def truth(self) -> float:
        return float(self.of_sums(self.by_day.sum(axis=0)))


class Scored(NamedTuple):
    """Rows by day: labels, answers, days as codes in order; `start` has each day's first row, and the end."""

    labels: np.ndarray
    answers: np.ndarray
    days: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        return np.searchsorted(self.days, np.arange(int(self.days.max()) + 2))


class Flights(NamedTuple):
    """Answers to rows from September on, (N,): of boosting, logistic regression, networks (seeds, N), and delays."""

    labels: np.ndarray
    delays: np.ndarray
    days: np.ndarray
    boosting: np.ndarray
    linear: np.ndarray
    networks: np.ndarray
    minutes: np.ndarray


def main() -> None:
    """Measure and print all tables."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    warnings.simplefilter("ignore")
    repetitions, draws = (40, 60) if short else (REPETITIONS, DRAWS)
    flights = learn(short)
    figures = _coverage(flights, repetitions)
    figures |= _same_model(flights, draws)
    figures |= _power(flights, draws)
    figures |= few_rows(repetitions)
    targets = {name: 0.10 for name in figures if name.startswith("missed_30_")}
    targets |= {name: 0.07 for name in figures if name.startswith("missed_91_")}
    targets |= {"few_shares_independent_exact": 0.07, "few_shares_alike_exact": 0.10}
    targets |= {"few_decisions_independent_tango": 0.07, "few_decisions_alike_tango": 0.10}
    targets |= {"false_better": 0.05, "false_better_upper": 0.06, "power_missed": 0.20}
    finish("evidence", figures, targets, short=short, zero_allowed=figures)


def learn(short: bool) -> Flights:
    """Train all models and score the days from September on."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    contract = load_contract(CONTRACT)
    rows = labelled(contract, short).sort_values("date", kind="stable")
    if not short:
        rows = rows[(rows["date"] <= TRAINED_UNTIL).to_numpy() | (np.arange(len(rows)) % EVERY == 0)]
    names = [one.name for one in contract.columns if one.role == "feature" and one.name in rows]
    features = rows[[name for name in names if rows[name].dtype.kind in "if"]].to_numpy(dtype=np.float64)
    learned = (rows["date"] <= TRAINED_UNTIL).to_numpy()
    late, delay = rows["late"].to_numpy(dtype=np.float64), rows["arr_delay"].to_numpy(dtype=np.float64)
    mean, spread = np.nanmean(features[learned], axis=0), np.nanstd(features[learned], axis=0) + 1e-9
    filled = np.clip(np.nan_to_num((features - mean) / spread), -5, 5)
    seeds = 3 if short else SEEDS

    def probability(model: object) -> np.ndarray:
        return model.fit(filled[learned], late[learned]).predict_proba(filled[~learned])[:, 1]  # pyright: ignore

    minutes = (
        HistGradientBoostingRegressor(max_iter=60, random_state=0)
        .fit(filled[learned], delay[learned])
        .predict(filled[~learned])
    )
    networks = [
        MLPClassifier((32,), batch_size=BATCH_ROWS, learning_rate_init=0.002, alpha=0.1, max_iter=8, random_state=seed)
        for seed in range(seeds)
    ]
    return Flights(
        labels=late[~learned],
        delays=delay[~learned],
        days=np.unique(rows["date"][~learned], return_inverse=True)[1],
        boosting=probability(HistGradientBoostingClassifier(max_iter=60, random_state=0)),
        linear=probability(LogisticRegression(max_iter=200)),
        networks=np.stack([probability(network) for network in networks]),
        minutes=minutes,
    )


def _coverage(flights: Flights, repetitions: int) -> dict[str, float]:
    """Print the table of coverages; figures are shares of intervals that missed."""
    figures: dict[str, float] = {}
    random = np.random.default_rng(0)
    print(f"{'30 real days':34} {'t by day':>9} {'percentile':>10} {'iid t':>7} {'in a row':>9}   truth")
    for name, metric in real_sums(flights).items():
        days = len(metric.by_day)
        drawn = random.integers(0, days, (repetitions, min(REAL_DAYS, days)))
        by_day, iid = held(metric, *interval(metric, drawn)), "–"
        if metric.squares is not None:
            iid = f"{held(metric, *iid_interval(metric, drawn)):.3f}"
        percentile, windows = held(metric, *percentiles(metric, drawn, random)), in_a_row(days)
        row = held(metric, *interval(metric, windows))
        print(f"{name:34} {by_day:9.3f} {percentile:10.3f} {iid:>7} {row:9.3f}   {metric.truth:.4g}", flush=True)
        figures[f"missed_30_{_key(name)}"] = 1 - by_day
    scored = Scored(flights.labels, flights.boosting, flights.days)
    for name, measure in OF_ROWS.items():
        truth = measure(scored).value
        days = int(flights.days.max()) + 1
        drawn = random.integers(0, days, (repetitions, min(REAL_DAYS, days)))
        by_day, row = (
            _held_by_rows(scored, measure, truth, places) for places in (drawn, in_a_row(days)[:: 1 + days // 400])
        )
        print(f"{name:34} {by_day:9.3f} {'–':>10} {'–':>7} {row:9.3f}   {truth:.4g}", flush=True)
        figures[f"missed_30_{_key(name)}"] = 1 - by_day
    print(f"\n{'drawn days':34} {'30 days':>9} {'91 days':>10} {'iid, 91':>7}   truth")
    for name, metric in drawn_sums(random).items():
        some, many = (random.integers(0, len(metric.by_day), (repetitions, n)) for n in (REAL_DAYS, DRAWN_DAYS))
        few, more, iid = (
            held(metric, *interval(metric, some)), held(metric, *interval(metric, many)), "–",
        )  # fmt: skip
        if metric.squares is not None:
            iid = f"{held(metric, *iid_interval(metric, many)):.3f}"
        print(f"{name:34} {few:9.3f} {more:10.3f} {iid:>7}   {metric.truth:.4g}", flush=True)
        figures[f"missed_91_{_key(name)}"] = 1 - more
    for name, (measure, population, truth) in drawn_rows(random).items():
        few, more = (
            _held_by_rows(population, measure, truth, random.integers(0, POPULATION, (repetitions, n)))
            for n in (REAL_DAYS, DRAWN_DAYS)
        )
        print(f"{name:34} {few:9.3f} {more:10.3f} {'–':>7}   {truth:.4g}", flush=True)
        figures[f"missed_91_{_key(name)}"] = 1 - more
    return figures


def real_sums(flights: Flights) -> dict[str, Sums]:
    """Metrics of flights that are sums over days."""
    loss = BINARY.metrics["log_loss"].rows
    assert loss is not None
    gain = loss(flights.labels, flights.linear) - loss(flights.labels, flights.boosting)
    error = (flights.minutes - flights.delays) ** 2
    recall = (flights.labels == 1, (flights.labels == 1) & (flights.boosting >= 0.5))
    return {
        "log loss gain over linear": mean_of(gain, flights.days),
        "RMSE of the delay, heavy tails": mean_of(error, flights.days)._replace(of_sums=_root, is_mean=False),
        "MAE of the delay": mean_of(np.sqrt(error), flights.days),
        "recall at 0.5": Sums(group_sums([one.astype(float) for one in recall], flights.days, None), _share),
    }


def drawn_sums(random: np.random.Generator) -> dict[str, Sums]:
    """Metrics of drawn days: a loss, an RMSE with heavy tails, and two of a class that has few rows."""
    days = np.repeat(np.arange(POPULATION), ROWS_A_DAY)
    labels, claimed, known = _drawn_answers(random)
    loss = BINARY.metrics["log_loss"].rows
    assert loss is not None
    scale = np.exp(0.3 * random.normal(size=POPULATION))[days]
    heavy = {degrees: random.standard_t(degrees, len(days)) * scale for degrees in (3, 5)}
    light = random.normal(size=len(days)) * scale
    # 900 rows a day of which 0.1 % are positive; the share that is found differs by day.
    positives = random.poisson(0.9, POPULATION)
    found = random.binomial(positives, random.beta(12, 8, POPULATION))
    # 20 pictures a day, of whose pixels 0.1 % are of the class, in blobs: where they lie apart, they miss each other.
    blobs = random.poisson(2.0, POPULATION)
    truth = np.array([random.lognormal(4, 1, count).sum() for count in blobs]).round()
    both = random.binomial(truth.astype(int), random.beta(6, 3, POPULATION))
    wrong = random.poisson(8.0, POPULATION)
    return {
        "log loss gain": mean_of(loss(labels, claimed) - loss(labels, known), days),
        "RMSE, normal errors": mean_of(light**2, days)._replace(of_sums=_root, is_mean=False),
        "RMSE, t with 5 degrees of freedom": mean_of(heavy[5] ** 2, days)._replace(of_sums=_root, is_mean=False),
        "RMSE, t with 3 degrees of freedom": mean_of(heavy[3] ** 2, days)._replace(of_sums=_root, is_mean=False),
        "MAE, t with 3 degrees of freedom": mean_of(abs(heavy[3]), days),
        "recall of 0.1 %": Sums(np.stack([positives, found], axis=1).astype(float), _share),
        "IoU of 0.1 % of the pixels": Sums(np.stack([truth + wrong, both], axis=1).astype(float), _share),
    }


def drawn_rows(random: np.random.Generator) -> dict[str, tuple[Callable[[Scored], Estimate], Scored, float]]:
    """Metrics of drawn rows, each with its population and what is true of it."""
    days = np.repeat(np.arange(POPULATION), ROWS_A_DAY)
    labels, claimed, known = _drawn_answers(random)
    true, stretched = Scored(labels, known, days), Scored(labels, expit(1.2 * logit(known)), days)
    near = Scored(labels, claimed, days)
    found = {}
    for name, measure in OF_ROWS.items():
        if name == "AUC":
            found[name] = (measure, near, measure(near).value)
            continue
        # What is claimed is what rows were drawn by, so that 0, 0 and 1 are true.
        found[f"{name}, calibrated"] = (measure, true, 1.0 if name == "calibration slope" else 0.0)
        found[f"{name}, too sure"] = (measure, stretched, measure(stretched).value)
    return found


def _drawn_answers(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities that do not know the day's effect, and those that rows are drawn by; by day."""
    score = random.normal(size=POPULATION * ROWS_A_DAY) - 1.2
    effect = np.repeat(0.4 * random.normal(size=POPULATION), ROWS_A_DAY)
    known = expit(score + effect)
    return (random.random(len(known)) < known).astype(float), expit(score), known


def mean_of(values: np.ndarray, days: np.ndarray) -> Sums:
    """The mean of values of rows."""
    return Sums(group_sums([values, None], days, None), _mean, True, np.bincount(days, weights=values**2))


def _mean(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., 0], sums[..., 1])


def _root(sums: np.ndarray) -> np.ndarray:
    return np.sqrt(_mean(sums))


def _share(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., 1], sums[..., 0])


def interval(metric: Sums, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As tasks/interval.py, of many draws of days (R, G) at once: low and high, (R,)."""
    sums = metric.by_day[drawn]
    total, count = sums.sum(axis=1), drawn.shape[1]
    value = metric.of_sums(total)
    if metric.is_mean:
        residuals = sums[..., 0] - value[:, None] * sums[..., 1]
        variance = count / (count - 1) * (residuals**2).sum(axis=1) / total[:, 1] ** 2
    else:
        left = metric.of_sums(np.stack([sums_without_each(one) for one in sums]))
        variance = (count - 1) / count * ((left - left.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    reach = stdtrit(count - 1, 0.975) * np.sqrt(variance)
    return value - reach, value + reach


def iid_interval(metric: Sums, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same if rows were independent."""
    assert metric.squares is not None
    sums = metric.by_day[drawn].sum(axis=1)
    mean = _mean(sums)
    reach = 1.96 * np.sqrt((metric.squares[drawn].sum(axis=1) / sums[:, 1] - mean**2) / sums[:, 1])
    if metric.is_mean:
        return mean - reach, mean + reach
    root = np.sqrt(mean)
    return root - reach / (2 * root), root + reach / (2 * root)


def percentiles(
    metric: Sums, drawn: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Percentiles of a bootstrap over the days of each draw."""
    count, found = drawn.shape[1], []
    for days in drawn:
        times = random.multinomial(count, np.full(count, 1 / count), BOOTSTRAPS)
        found.append(np.nanquantile(metric.of_sums(times @ metric.by_day[days]), (0.025, 0.975)))
    low, high = np.array(found).T
    return low, high


def held(metric: Sums, low: np.ndarray, high: np.ndarray) -> float:
    """Share of intervals that hold the truth; one that is not defined or has no width holds none."""
    return float(((low <= metric.truth) & (metric.truth <= high) & (low < high)).mean())


def in_a_row(days: int) -> np.ndarray:
    """All windows of 30 days in a row."""
    count = min(REAL_DAYS, days)
    return np.arange(days - count + 1)[:, None] + np.arange(count)


def _held_by_rows(
    scored: Scored, measure: Callable[[Scored], Estimate], truth: float, drawn: np.ndarray
) -> float:  # fmt: skip
    """Coverage of what is measured of rows, of many draws of days (R, G)."""
    holding = 0
    for one in of_days(scored, drawn):
        try:
            found = measure(one)
        except EvaluationError:
            continue
        holding += found.low <= truth <= found.high
    return holding / len(drawn)


def of_days(scored: Scored, drawn: np.ndarray) -> Iterator[Scored]:
    """The rows of each draw; a day that was drawn twice is two groups."""
    starts = scored.starts
    for days in drawn:
        sizes = starts[days + 1] - starts[days]
        rows = np.repeat(starts[days] - np.append(0, np.cumsum(sizes)[:-1]), sizes) + np.arange(sizes.sum())
        yield Scored(scored.labels[rows], scored.answers[rows], np.repeat(np.arange(len(days)), sizes))


def _of_kind(name: str) -> Callable[[Scored], Estimate]:
    return lambda scored: estimate(BINARY.metrics[name], scored.labels, scored.answers, scored.days)


OF_ROWS: dict[str, Callable[[Scored], Estimate]] = {
    "AUC": _of_kind("auc"),
    "calibration error": _of_kind("calibration_error"),
    "debiased calibration error": lambda scored: debiased_error(*scored),
    "calibration intercept": lambda scored: intercept(*scored),
    "calibration slope": lambda scored: slope(*scored),
}


def _same_model(flights: Flights, draws: int) -> dict[str, float]:
    """Print how often a network is called better than itself with another seed."""
    random = np.random.default_rng(1)
    sums = network_sums(flights, flights.networks)
    days, seeds = sums.shape[1], len(sums)
    found = {}
    heads = f"{'better':>9} {'upper 95 %':>10} {'with seeds':>11} {'higher wins':>12}"
    print(f"\n{'one model, two seeds, 30 days':34} {heads}")
    for name, places in (
        ("days drawn", random.integers(0, days, (draws, min(REAL_DAYS, days)))),
        ("days in a row", in_a_row(days)[random.integers(0, len(in_a_row(days)), draws)]),
    ):
        first = random.integers(0, seeds, draws)
        second = (first + random.integers(1, seeds, draws)) % seeds
        low, high = _gains(sums, first, second, places)
        spread = [_spread(sums[:, days], {one, other}, random)
                  for one, other, days in zip(first, second, places, strict=True)]  # fmt: skip
        seeded = float((_with_seeds(low, high, np.array(spread), places.shape[1]) > 0).mean())
        better = int((low > 0).sum())
        upper = float(beta.ppf(0.95, better + 1, draws - better))
        wins = float((low + high > 0).mean())
        print(f"{name:34} {better / draws:9.3f} {upper:10.3f} {seeded:11.3f} {wins:12.3f}", flush=True)
        found[name] = (better / draws, upper, seeded)
    totals = sums[..., 0].sum(axis=1) / sums[..., 1].sum(axis=1)
    print(f"log loss of the {seeds} seeds over all days: {totals.mean():.4f}, spread {totals.std(ddof=1):.5f}")
    share, upper, seeded = found["days drawn"]
    return {"false_better": share, "false_better_upper": upper, "false_better_with_seeds": seeded}


def _spread(sums: np.ndarray, compared: set[int], random: np.random.Generator) -> float:
    """Variance of the mean loss between three seeds that are not compared."""
    others = random.permutation([seed for seed in range(len(sums)) if seed not in compared])[:FURTHER_SEEDS]
    losses = _mean(sums[others].sum(axis=1))
    return float(losses.var(ddof=1)) if len(losses) > 1 else 0.0


def _with_seeds(low: np.ndarray, high: np.ndarray, spread: np.ndarray, count: int) -> np.ndarray:
    """The lower ends of intervals that reckon with both models' seeds, by t with Satterthwaite's degrees of freedom."""
    value, by_days = (low + high) / 2, ((high - low) / 2 / stdtrit(count - 1, 0.975)) ** 2
    by_seeds = 2 * spread
    degrees = (by_days + by_seeds) ** 2 / (by_days**2 / (count - 1) + by_seeds**2 / (FURTHER_SEEDS - 1))
    return value - stdtrit(degrees, 0.975) * np.sqrt(by_days + by_seeds)


def network_sums(flights: Flights, answers: np.ndarray) -> np.ndarray:
    """Of each model's loss the sums over days, with the days' rows: (models, days, 2)."""
    loss = BINARY.metrics["log_loss"].rows
    assert loss is not None
    return np.stack([group_sums([loss(flights.labels, one), None], flights.days, None) for one in answers])


def _gains(
    sums: np.ndarray, first: np.ndarray, second: np.ndarray, drawn: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The interval of the first model's gain over the second, of each draw."""
    found = []
    for one, other, days in zip(first, second, drawn, strict=True):
        gain = np.stack([sums[other, :, 0] - sums[one, :, 0], sums[one, :, 1]], axis=1)
        low, high = interval(Sums(gain, _mean, is_mean=True), days[None])
        found.append((low[0], high[0]))
    low, high = np.array(found).T
    return low, high


def _power(flights: Flights, draws: int) -> dict[str, float]:
    """Print how often 30 days show that a network is better than another one, made worse by 0.005 over all days."""
    random, loss = np.random.default_rng(2), BINARY.metrics["log_loss"].rows
    assert loss is not None
    noise = random.normal(size=len(flights.labels))
    worse = {
        "log-odds stretched": lambda logits, by: (1 + by) * logits,
        MIXED: lambda logits, by: (1 - by) * logits + by * logit(flights.linear),
        "log-odds with noise": lambda logits, by: logits + by * noise,
    }
    shown: dict[str, list[bool]] = {name: [] for name in worse}
    drawn_pairs = 2 if len(flights.networks) < SEEDS else 10
    for first in range(drawn_pairs):
        second = (first + 1) % len(flights.networks)
        mine, theirs = flights.networks[first], logit(np.clip(flights.networks[second], 1e-6, 1 - 1e-6))
        for name, made in worse.items():
            by = _strength(lambda by, made=made, theirs=theirs, mine=mine: float(
                (loss(flights.labels, expit(made(theirs, by))) - loss(flights.labels, mine)).mean()))  # fmt: skip
            if by is None:
                continue
            sums = network_sums(flights, np.stack([mine, expit(made(theirs, by))]))
            days = sums.shape[1]
            drawn = random.integers(0, days, (draws // drawn_pairs, min(REAL_DAYS, days)))
            gain = np.stack([sums[1, :, 0] - sums[0, :, 0], sums[0, :, 1]], axis=1)
            shown[name] += list(interval(Sums(gain, _mean, is_mean=True), drawn)[0] > 0)
    print(f"\n{'better by 0.005 over all days':34} {'shown':>9} {'draws':>10}")
    for name, found in shown.items():
        print(f"{name:34} {np.mean(found) if found else float('nan'):9.3f} {len(found):10}")
    family = [one for name, found in shown.items() for one in found if name != MIXED]
    mixed = {"power_missed_of_mixed": 1 - float(np.mean(shown[MIXED]))} if shown[MIXED] else {}
    return {"power_missed": 1 - float(np.mean(family or [False])), **mixed}


def _strength(gain: Callable[[float], float]) -> float | None:
    """From 0 to 1.5, where the gain is 0.005; None if that is never so."""
    low, high = 0.0, 1.5
    if not gain(low) < IMPROVEMENT < gain(high):
        return None
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if gain(middle) < IMPROVEMENT else (low, middle)
    return (low + high) / 2


def _key(name: str) -> str:
    return "".join(one if one.isalnum() else "_" for one in name.lower()).strip("_").replace("__", "_")


if __name__ == "__main__":
    main()
