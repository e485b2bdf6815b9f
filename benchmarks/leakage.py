"""The leakage battery on tables with one planted leak each, and on healthy odd ones.

Every table is drawn anew from a seed: size, share of positives, features. The limits were chosen on even seeds; the
rates printed are those of the odd ones. Target: 95 % of the leaks are found by the right family, and at most 1 % of
the healthy tables raise an alarm.

    make bench NAME=leakage                 about 3 minutes on 2 cores
    python -m benchmarks.leakage --record   and keep the counts of the check snapshot.leakage
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.record import FaultRun, HealthyRun, keep, of_faults, of_healthy, whole_parts
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.leakage.battery import leakage_findings
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.spec.split import BenchmarkWindow, TimeSplit

SEEDS = range(1, 60, 2)
# The id by which `trainworthy explain` knows the battery.
CHECK = "snapshot.leakage"
SHARES = {"training": 0.7, "validation": 0.1, "calibration": 0.1, "benchmark": 0.1}
SPLIT = TimeSplit(
    by="time", column="day", embargo="1d", validation="14d", calibration="14d",
    benchmark=BenchmarkWindow(window="14d", roll="each_version"), resample_by="day",
)  # fmt: skip
Table = pd.DataFrame
Plant = Callable[[Table, np.random.Generator], Table]


def main() -> None:
    """Print the share of tables on which each leak was found, and of healthy ones with an alarm."""
    parser = arguments(__doc__)
    parser.add_argument("--record", action="store_true", help="keep the counts of the check")
    asked = parser.parse_args()
    short, record = asked.short, whole_parts(parser, asked)
    begin(short)
    seeds = SEEDS[:1] if short else SEEDS
    planted = {name: [alarms(table(seed, plant), FAMILIES[name]) for seed in seeds] for name, plant in LEAKS.items()}
    healthy = {name: [alarms(table(seed, plant)) for seed in seeds] for name, plant in HEALTHY.items()}
    caught, alarmed = _shares(planted), _shares(healthy)
    print(pd.Series(caught, name="found").round(3).to_string())
    print(pd.Series(alarmed, name="false alarm").round(3).to_string())
    if record:
        _keep([one for some in planted.values() for one in some], [one for some in healthy.values() for one in some])
    missed, wrong = 1 - np.mean(list(caught.values())), np.mean(list(alarmed.values()))
    figures = {"leaks_missed": float(missed), "false_alarms": float(wrong)}
    targets = {"leaks_missed": 0.05, "false_alarms": 0.01}
    finish("leakage", figures, targets, short=short, zero_allowed=figures)


def _shares(leaks: dict[str, list[list[Leak]]]) -> dict[str, float]:
    """By kind of table, the share of its tables with a finding."""
    return {name: float(np.mean([bool(of_one) for of_one in tables])) for name, tables in leaks.items()}


def _keep(planted: list[list[Leak]], healthy: list[list[Leak]]) -> None:
    """Put the check's counts into record.json; a leak counts where a family that it is named for saw it."""
    keep("leakage", "planted", len(planted), of_faults([FaultRun((CHECK,), (CHECK,) * bool(one)) for one in planted]))
    keep("leakage", "healthy", len(healthy), of_healthy([as_healthy(one) for one in healthy]))


def as_healthy(leaks: list[Leak]) -> HealthyRun:
    """A failing family stops the step, as in `leakage_check`; one that suspects something warns."""
    stops = any(leak.status == "fail" for leak in leaks)
    return HealthyRun((CHECK,), alarms=(CHECK,) * stops, warnings=(CHECK,) * (bool(leaks) and not stops))


def alarms(rows: Table, families: tuple[str, ...] | None = None) -> list[Leak]:
    """Findings that fail or warn; only those of the families, if given."""
    with tempfile.TemporaryDirectory() as folder:
        leaks = leakage_findings(written(rows, Path(folder)), contract_of(rows), SPLIT)
    return [leak for leak in leaks if leak.status in ("fail", "warning") and (not families or leak.family in families)]


def table(seed: int, plant: Plant) -> Table:
    """Rows in order of time with features of many kinds and a label that they tell to some degree."""
    generator = np.random.default_rng(seed)
    rows = int(generator.choice([4_000, 10_000, 30_000]))
    share = float(generator.choice([0.02, 0.05, 0.2, 0.5, 0.8]))
    strength = float(generator.uniform(0.2, 1.8))
    score = generator.normal(size=rows)
    logit = strength * score + 0.5 * np.sin(np.arange(rows) / rows * 6)
    noise = generator.logistic(size=rows) * generator.choice([0.5, 1.0])
    label = logit + noise > np.quantile(logit + noise, 1 - share)
    made = pd.DataFrame(
        {
            "row_id": np.arange(rows),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(rows) * 200 // rows, unit="D"),
            "score": score.round(2),
            "amount": generator.lognormal(size=rows).round(2),
            "weekday": np.arange(rows) * 200 // rows % 7,
            "shop": generator.choice(["north", "south", "west"], rows),
            "street": generator.choice([f"street {n}" for n in range(1_500)], rows),
            "constant": 1.0,
            "minutes_a": generator.normal(60, 20, rows).round(),
            "minutes_b": generator.normal(60, 20, rows).round(),
            "x": generator.normal(size=rows),
            "maybe": np.where(generator.random(rows) < 0.3, np.nan, generator.normal(size=rows)),
            "label": label.astype("int8"),
        }
    )
    return plant(made, generator)


def written(rows: Table, folder: Path) -> SplitFiles:
    """The four splits, one after the other; a column `split` of the table says otherwise."""
    ends = (np.cumsum(list(SHARES.values())) * len(rows)).round().astype(int)
    place = np.searchsorted(ends, np.arange(len(rows)), side="right")
    split = rows["split"].to_numpy() if "split" in rows else np.array(list(SHARES))[place]
    for name in SHARES:
        rows[split == name].drop(columns="split", errors="ignore").to_parquet(folder / f"{name}.parquet", index=False)
    return SplitFiles(folder)


def contract_of(rows: Table) -> Contract:
    """A contract in which all but the key, the day and the label are features."""
    roles = {"row_id": "key", "day": "event_time", "label": "target"}
    kinds = {"i": "integer", "f": "number", "b": "boolean", "M": "timestamp"}
    columns = tuple(
        Column(
            name=name, logical_type=kinds.get(rows[name].dtype.kind, "string"), role=roles.get(name, "feature"),  # pyright: ignore
            unit="minutes" if name.startswith("minutes") else None, available_at="PT0S",
        )
        for name in rows.columns.drop("split", errors="ignore")
    )  # fmt: skip
    label = Label(name="label", version=1, column="label")
    return Contract(name="t", version="1", columns=columns, rules=(), label=label, primary_key=("row_id",))


# ---- leaks -----------------------------------------------------------------------------------------------------------


def flipped(rows: Table, generator: np.random.Generator) -> Table:
    """A copy of the label with 5 % of its values flipped."""
    return rows.assign(copy=rows["label"] ^ (generator.random(len(rows)) < 0.05))


def noisy(rows: Table, generator: np.random.Generator) -> Table:
    return rows.assign(copy=rows["label"] * 3.0 + generator.normal(0, 0.7, len(rows)))


def coded(rows: Table, generator: np.random.Generator) -> Table:
    """Codes of 400 categories, of which each belongs to one label; 3 % are wrong."""
    told = rows["label"] ^ (generator.random(len(rows)) < 0.03)
    codes = np.random.default_rng(0).permutation(400)
    chosen = codes[2 * generator.integers(0, 200, len(rows)) + told]
    return rows.assign(copy=[f"c{code:03}" for code in chosen])


def parity(rows: Table, generator: np.random.Generator) -> Table:
    """The label hides in the last digit of a number of many values."""
    return rows.assign(copy=2 * generator.integers(0, 150, len(rows)) + rows["label"])


def only_when(rows: Table, generator: np.random.Generator) -> Table:
    """A remark that is written for half of the positives and nobody else."""
    told = (rows["label"] == 1) & (generator.random(len(rows)) < 0.5)
    return rows.assign(copy=np.where(told, generator.normal(size=len(rows)), np.nan))


def gap_of_two(rows: Table, generator: np.random.Generator) -> Table:
    late = np.where(rows["label"] == 1, 10 + generator.exponential(20, len(rows)), generator.uniform(-30, 9, len(rows)))
    return rows.assign(minutes_b=rows["minutes_a"] + late.round())


def numbered(rows: Table, generator: np.random.Generator) -> Table:
    """Rows numbered after they were sorted by label within their day."""
    made = rows.sort_values(["day", "label"], kind="stable", ignore_index=True)
    return made.assign(number=np.arange(len(made)) * 3 + 1_000)


def copied(rows: Table, generator: np.random.Generator) -> Table:
    """3 % of the held-out rows are rows of training under another key."""
    return _copies(rows, generator, 0.0)


def jittered(rows: Table, generator: np.random.Generator) -> Table:
    """8 % of the held-out rows are rows of training, each number a little changed."""
    return _copies(rows, generator, 0.003, share=0.08)


def oversampled(rows: Table, generator: np.random.Generator) -> Table:
    """The rarer label was doubled before a random split."""
    rare = int(rows["label"].mean() < 0.5)
    both = pd.concat([rows, rows[rows["label"] == rare]], ignore_index=True)
    names = generator.choice(list(SHARES), len(both), p=list(SHARES.values()))
    return both.assign(row_id=np.arange(len(both)), split=names)


def _copies(rows: Table, generator: np.random.Generator, jitter: float, share: float = 0.03) -> Table:
    made, first = rows.copy(), int(0.7 * len(rows))
    places = first + generator.choice(len(rows) - first, int(share * (len(rows) - first)), replace=False)
    source = generator.choice(first, len(places))
    for name in made.columns.drop(["row_id", "day"]):
        values = rows[name].to_numpy()[source]
        if jitter and values.dtype.kind == "f":
            values = values + generator.normal(0, jitter * max(float(np.nanstd(values)), 1e-9), len(values))
        made[name] = made[name].astype("float64") if jitter and values.dtype.kind == "f" else made[name]
        made.loc[made.index[places], name] = values
    return made


LEAKS: dict[str, Plant] = {
    "flipped": flipped, "noisy": noisy, "coded": coded, "parity": parity, "only_when": only_when,
    "gap_of_two": gap_of_two, "numbered": numbered, "copied": copied, "jittered": jittered, "oversampled": oversampled,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, ...]] = {
    "flipped": ("single_feature",), "noisy": ("single_feature",), "coded": ("single_feature",),
    "parity": ("single_feature",), "only_when": ("null_mask", "single_feature"), "gap_of_two": ("difference",),
    "numbered": ("row_order",), "copied": ("duplicates", "near_duplicates"), "jittered": ("near_duplicates",),
    "oversampled": ("duplicates",),
}  # fmt: skip


# ---- healthy ---------------------------------------------------------------------------------------------------------


def as_it_is(rows: Table, generator: np.random.Generator) -> Table:
    return rows


def categories_only(rows: Table, generator: np.random.Generator) -> Table:
    """Six columns of few values: equal rows are the rule."""
    made = rows[["row_id", "day", "shop", "weekday", "label"]].copy()
    for number in range(4):
        made[f"c{number}"] = generator.choice(["a", "b", "c"], len(rows), p=[0.6, 0.3, 0.1])
    return made.assign(told=np.where(generator.random(len(rows)) < 0.7, made["label"], 1 - made["label"]))


def strong(rows: Table, generator: np.random.Generator) -> Table:
    """An honest score of AUC 0.95, and an honest yes or no of AUC 0.88."""
    wrong = generator.random(len(rows)) < 0.12
    return rows.assign(
        good=rows["label"] * 2.33 + generator.normal(size=len(rows)),
        answer=np.where(wrong, 1 - rows["label"], rows["label"]),
    )


def returning(rows: Table, generator: np.random.Generator) -> Table:
    """Customers who come again: nothing about them changes, and each visit ends as it does."""
    customers = rows.head(max(200, len(rows) // 50)).drop(columns=["row_id", "day", "label"])
    who = generator.integers(0, len(customers), len(rows))
    visits = customers.iloc[who].reset_index(drop=True)
    return pd.concat([rows[["row_id", "day", "label"]].reset_index(drop=True), visits], axis=1)


def sorted_by_label(rows: Table, generator: np.random.Generator) -> Table:
    """Sorted within the day; no feature carries the order."""
    return rows.sort_values(["day", "label"], kind="stable", ignore_index=True).assign(row_id=np.arange(len(rows)))


def honest_mask(rows: Table, generator: np.random.Generator) -> Table:
    """A value that is there three times as often in one label, and one that ended with the months of training."""
    there = generator.random(len(rows)) < np.where(rows["label"] == 1, 0.9, 0.3)
    return rows.assign(
        test=np.where(there, rows["x"], np.nan), old=np.where(np.arange(len(rows)) < 0.6 * len(rows), rows["x"], np.nan)
    )


def at_random(rows: Table, generator: np.random.Generator) -> Table:
    return rows.assign(split=generator.choice(list(SHARES), len(rows), p=list(SHARES.values())))


HEALTHY: dict[str, Plant] = {
    "as_it_is": as_it_is, "categories_only": categories_only, "strong": strong, "returning": returning,
    "sorted_by_label": sorted_by_label, "honest_mask": honest_mask, "at_random": at_random,
}  # fmt: skip


if __name__ == "__main__":
    main()
