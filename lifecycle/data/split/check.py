"""Whether the splits are what was declared: looks at the rows that were cut, not at how they were cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.split.by_stratum import stratum_codes
from trainworthy.lifecycle.data.split.by_time import Ticks, ticks_of
from trainworthy.lifecycle.data.split.overlap import disjoint_columns, shared, shared_values
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.spec.split import SPLITS, RollEvery, SplitSpec, StratifiedSplit, Windows
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# By how much a split's share of all rows may miss the declared one, where strata make it exact but for whole rows.
_SHARE_MISSED = 0.01


def splits_check(
    splits: Mapping[str, pd.DataFrame],
    spec: SplitSpec,
    label: Label,
    primary_key: Sequence[str] = (),
    labelled_rows: int | None = None,
    key_hashes: np.ndarray | None = None,
) -> CheckResult:
    """Fails if a split is empty, has labels that are all alike or of a class that training lacks, has too few groups,
    or if two splits share what is declared to lie in one. Warns of classes of which the benchmark has no row.

    That is rows (by number and by primary key), groups, time up to the embargo. Validation and benchmark are judged
    with intervals by group: found missing after the pilot, too few would have cost the pilot. `labelled_rows` are all
    that were to be split: how many lie in no split is told. `key_hashes` (hashing.row_hashes of the primary key, by row
    number) stand for the key's columns, which would be most of what is held.
    """
    problems = [*_emptiness(splits, label), *_few_groups(splits, spec)]
    problems += shared({name: rows.index.to_numpy() for name, rows in splits.items()}, "rows")
    hashed = () if key_hashes is None else tuple(primary_key)
    if key_hashes is not None:
        numbers = {name: key_hashes[rows.index] for name, rows in splits.items()}
        problems += shared(numbers, f"values of {', '.join(primary_key)}")
    for columns in dict.fromkeys((tuple(primary_key), disjoint_columns(spec, primary_key))):
        problems += shared_values(splits, columns) if columns and columns != hashed else []
    if all(len(splits[name]) for name in SPLITS):
        if isinstance(spec, Windows):
            problems += _in_time({name: ticks_of(splits[name], spec) for name in SPLITS}, spec)
        elif isinstance(spec, StratifiedSplit):
            problems += _shares(splits, spec, label)
    warnings = [] if problems else [*_unmeasured_classes(splits["benchmark"][label.name], label)]
    evidence = "; ".join(problems) or "; ".join([*warnings, _summary(splits, spec, labelled_rows)])
    fix = "use other windows, shares or columns in split, or a dataset version with more rows"
    return holds(
        "splits", not problems and not warnings, severity="error" if problems else "warning", evidence=evidence,
        fix=fix if problems or warnings else "", details=_details(splits, label),
    )  # fmt: skip


def _emptiness(splits: Mapping[str, pd.DataFrame], label: Label) -> Iterator[str]:
    yield from (f"{name} has no rows" for name in SPLITS if not len(splits[name]))
    filled = {name: splits[name][label.name] for name in SPLITS if len(splits[name])}
    yield from (f"{name} has {why}" for name, labels in filled.items() if (why := label.kind.one_valued(labels)))
    yield from _unlearnt_classes(filled, label)


def _unlearnt_classes(labels: Mapping[str, pd.Series], label: Label) -> Iterator[str]:
    """Classes that a held-out split has and training has not: nothing can be learned of them."""
    if not label.classes or "training" not in labels:
        return
    rows = {
        name: label.kind.class_rows(label.kind.checked_labels(split_labels)) for name, split_labels in labels.items()
    }
    for name, counts in rows.items():
        missing = [
            str(class_name)
            for class_name, own, known in zip(label.classes, counts, rows["training"], strict=True)
            if own and not known
        ]
        if missing:
            yield f"{name} has classes that training lacks: {', '.join(missing[:5])}"


def _unmeasured_classes(labels: pd.Series, label: Label) -> Iterator[str]:
    """Classes of which the benchmark has no row, so that no figure says anything of them."""
    if not label.classes:
        return
    counts = label.kind.class_rows(label.kind.checked_labels(labels))
    missing = [str(class_name) for class_name, rows in zip(label.classes, counts, strict=True) if not rows]
    if missing:
        yield f"benchmark has no row of {', '.join(missing[:5])}: nothing will be measured of it"


def _few_groups(splits: Mapping[str, pd.DataFrame], spec: SplitSpec) -> Iterator[str]:
    columns = dict.fromkeys((spec.resample_by, spec.group_column or spec.resample_by))
    for name, column in itertools.product(("validation", "benchmark"), columns):
        groups = int(splits[name][column].nunique())
        if len(splits[name]) and groups < MINIMUM_GROUPS:
            yield f"{name} has {groups} groups of {column}; intervals need {MINIMUM_GROUPS}"


def _in_time(spans: Mapping[str, Ticks], spec: Windows) -> Iterator[str]:
    """Wrong order, too small gaps, windows that are longer than declared, and a benchmark that lies elsewhere."""
    for before, after in itertools.pairwise(SPLITS):
        gap = int(spans[after].values.min()) - int(spans[before].values.max()) - 1
        if gap < spans[after].length(spec.embargo):
            yield f"{before} ends {spans[after].in_words(gap)} before {after}; the embargo is {spec.embargo}"
    lengths = {"validation": spec.validation, "calibration": spec.calibration, "benchmark": spec.benchmark.window}
    for name, length in lengths.items():
        ticks = spans[name]
        if int(ticks.values.max()) - int(ticks.values.min()) >= ticks.length(length):
            yield f"{name} is longer than {length}"
    benchmark, policy = spans["benchmark"], spec.benchmark
    first, last = int(benchmark.values.min()), int(benchmark.values.max())
    if policy.start is not None:
        start = benchmark.midnight(policy.start)
        if first < start or last >= start + benchmark.length(policy.window):
            yield f"benchmark has rows outside {policy.window} from {policy.start}, where it is pinned"
    elif isinstance(policy.roll, RollEvery):
        begin, every = benchmark.midnight(policy.roll.from_), benchmark.length(policy.roll.every)
        end = begin + ((last - begin) // every + 1) * every
        if first < end - benchmark.length(policy.window):
            yield f"benchmark is not the end of a period of {policy.roll.every} from {policy.roll.from_}"


def _shares(splits: Mapping[str, pd.DataFrame], spec: StratifiedSplit, label: Label) -> Iterator[str]:
    """Shares that miss the declared ones by more than rounding, in a stratum or in all."""
    import numpy as np
    import pandas as pd

    rows = pd.concat([splits[name][[label.name, *spec.strata]] for name in SPLITS], ignore_index=True)
    strata = stratum_codes(rows, spec, label)
    split = np.repeat(np.arange(len(SPLITS)), [len(splits[name]) for name in SPLITS])
    sizes = np.bincount(strata)
    for number, name in enumerate(SPLITS):
        declared, counts = spec.shares.of(name), np.bincount(strata[split == number], minlength=len(sizes))
        missed = int((np.abs(counts - declared * sizes) > 1 + 1e-9).sum())
        if missed:
            yield f"{name} misses its share of {declared:.3g} in {missed} of {len(sizes)} strata"
        elif abs(counts.sum() / len(rows) - declared) > _SHARE_MISSED:
            yield (
                f"{name} has {counts.sum() / len(rows):.1%} of the rows and {declared:.3g} are declared: the "
                f"{len(sizes)} strata are too small, name fewer columns in strata"
            )


def _summary(splits: Mapping[str, pd.DataFrame], spec: SplitSpec, labelled_rows: int | None) -> str:
    total = sum(len(rows) for rows in splits.values())
    if spec.time_column is not None:
        summary = ", ".join(f"{name} {span(splits[name], spec.time_column)}" for name in SPLITS)
    else:
        summary = ", ".join(f"{name} {len(splits[name]) / total:.1%} of the rows" for name in SPLITS)
    if labelled_rows is None:
        return summary
    left_out = labelled_rows - total
    return f"{summary}; {left_out} of {labelled_rows} labelled rows ({left_out / labelled_rows:.1%}) lie in no split"


def _details(splits: Mapping[str, pd.DataFrame], label: Label) -> tuple[dict[str, object], ...]:
    return tuple({"split": name, "rows": len(splits[name]), **_labels(splits[name], label)} for name in SPLITS)


def _labels(rows: pd.DataFrame, label: Label) -> dict[str, object]:
    if label.type == "event":
        return {"positives": int(rows[label.name].sum())}
    return {"labels": label.kind.in_words(rows[label.name]) if len(rows) else ""}


def span(rows: pd.DataFrame, column: str) -> str:
    """First and last value of a column, as text."""
    return f"{rows[column].min()} to {rows[column].max()}"
