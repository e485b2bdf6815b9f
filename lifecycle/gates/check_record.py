"""What is known of how well each check finds what it is for: record.json, which only benchmarks write.

`python -m benchmarks.preflight PART --record`, and the same of `benchmarks.monitors`, `leakage` and `go_no_go`, put a
whole part's counts into it, in the place of those that this part had before. No gate reads it: it decides nothing, and
is part of no identity.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from trainworthy.lifecycle.spec.frozen import Frozen

FILE = Path(__file__).with_name("record.json")
SUMMED = ("named", "found", "by_others", "looked", "alarms", "warnings")
# What a count is of: a check of preflight or a monitor, or a cause that alarms name.
Of = Literal["checks", "causes"]


class Counts(Frozen):
    """Of one check in one part of a benchmark, in runs.

    `named`: planted faults that name it among those that may tell of them. Of these it told `found`; `by_others` were
    told by another that is named too, and not by it: a monitor's run ends with the first that tells. `share` is the
    median part of the planned updates that were made between such a fault's begin and its telling, 0 to 1.
    `looked`: healthy runs in which it gave an answer; in so many of them it gave `alarms`, which would stop a run or
    are critical, or `warnings`.
    """

    named: int = 0
    found: int = 0
    by_others: int = 0
    share: float | None = None
    looked: int = 0
    alarms: int = 0
    warnings: int = 0


class Part(Frozen):
    """The counts of one part of a benchmark, with what says where they come from. `date` is ISO 8601, of its end."""

    command: str
    commit: str
    date: str
    hardware: str
    runs: int
    checks: dict[str, Counts]
    causes: dict[str, Counts] = Field(default_factory=dict)


def parts(path: Path = FILE) -> dict[str, Part]:
    """All parts, by their benchmark and name, as `preflight planted`; {} without a file."""
    if not path.exists():
        return {}
    return {name: Part.model_validate(part) for name, part in json.loads(path.read_text(encoding="utf-8")).items()}


class Record(Frozen):
    """The counts of one check over all parts of the benchmarks, and the parts that they are from, by name."""

    counts: Counts
    parts: dict[str, Part]

    def in_words(self) -> Iterator[str]:
        """In words: detection, false alarms, each where there is one."""
        counts = self.counts
        if counts.named:
            missed = counts.named - counts.found - counts.by_others
            share = f"; after {counts.share:.1%} of the run in the median" if counts.share is not None else ""
            yield (
                f"of {counts.named} planted faults that name it or its family {counts.found} found by it, "
                f"{counts.by_others} by another that is named with it, {missed} missed{share}"
            )
        if counts.looked:
            yield f"{counts.alarms} false alarms and {counts.warnings} warnings in {counts.looked} healthy runs"

    def sources(self) -> Iterator[str]:
        """The benchmarks that it is from, those of one day, commit and machine together."""
        together: dict[str, list[str]] = {}
        for name, part in self.parts.items():
            where = f"commit {part.commit}, {part.date[:10]}, {part.hardware.partition(', load')[0]}"
            together.setdefault(where, []).append(f"{name} ({part.runs} runs)")
        for where, names in together.items():
            yield f"benchmarks {', '.join(names)}: {where}"


def record_of(name: str, of: Of, known: dict[str, Part]) -> Record | None:
    """All that is known of that check or cause; None if no part has counts of it."""
    having = {key: part for key, part in known.items() if name in getattr(part, of)}
    if not having:
        return None
    every: list[Counts] = [getattr(part, of)[name] for part in having.values()]
    sums = {key: sum(getattr(counts, key) for counts in every) for key in SUMMED}
    # One part alone knows it, so that no median of medians is made.
    share = next((counts.share for counts in every if counts.share is not None), None)
    return Record(counts=Counts(**sums, share=share), parts=having)


def written(known: dict[str, Part], path: Path = FILE) -> None:
    """Write them, one line a check, so that a diff shows what changed; zeros are left out."""
    path.write_text(_text({name: part.model_dump(exclude_defaults=True) for name, part in sorted(known.items())}))


def _text(plain: dict[str, dict[str, object]]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_part(part)}" for name, part in plain.items()) + "\n}\n"


def _part(part: dict[str, object]) -> str:
    lines = [f" {json.dumps(key)}: {_by_id(value)}" for key, value in part.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def _by_id(value: object) -> str:
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return (
        "{\n"
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in sorted(value.items()))
        + "\n }"
    )
