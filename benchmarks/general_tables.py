"""What stored runs say of each rule: what is found without it, what it alone finds, what its threshold should be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.references_check import LEARNED_LESS

Run = Mapping[str, Any]
# What is told later costs more: a watched training stands for a whole one, smoke and pilot for those of a table.
STAGES = ("preflight", "smoke", "pilot", "training")
# A warning that a larger share of healthy runs has tells no fault from a healthy run.
MOST_WARNED = 0.05
# One-sided 95 %.
Z = 1.645
FOLLOWS = {check.id: check.follows for check in CATALOGUE}


@dataclass(frozen=True)
class Mechanism:
    """A way in which a training goes wrong: patterns of faults, and of the rules that were written for it.

    `parts` are those of a training that hold its mistake, as the exchange of parts names them.
    """

    id: str
    faults: tuple[str, ...]
    rules: tuple[str, ...]
    parts: tuple[str, ...] = ()

    def has(self, run: Run) -> bool:
        return matches(run["fault"], self.faults)

    def knows(self, rule: str) -> bool:
        return matches(rule, self.rules)


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def lower_bound(hits: int, tries: int) -> float:
    """Wilson's lower 95 % bound of a share; 0 of nothing."""
    if not tries:
        return 0.0
    share, root = hits / tries, Z * Z / tries
    spread = Z * math.sqrt((share * (1 - share) + root / 4) / tries)
    return max(0.0, (share + root / 2 - spread) / (1 + root))


def told(run: Run, loud: Collection[str] = ()) -> list[Mapping[str, Any]]:
    """What alarmed or warned, as people are told it: in order, what may follow from another alarm of preflight after
    the others. Without the warnings of `loud` rules.
    """
    words = [
        one for one in run["told"]
        if one["says"] == "alarm" or (one["says"] == "warning" and one["rule"] not in loud)
    ]  # fmt: skip
    failed = {one["rule"] for one in words if one["says"] == "alarm"}

    def place(one: Mapping[str, Any]) -> tuple[bool, bool]:
        later = one["stage"] != "preflight"
        return later, not later and not failed.isdisjoint(FOLLOWS.get(one["rule"], ()))

    return sorted(words, key=place)


def false_words(run: Run) -> list[Mapping[str, Any]]:
    """What was told of a healthy run that is neither meant so nor true.

    That a reference of the same rows is better is true where a training learns more, too, in which one part is
    exchanged for a standard one: sound code may learn less than a simple model, as a transformer of few updates does.
    """
    learns_less = part_named(run) is not None
    return [
        one for one in told(run)
        if not matches(one["rule"], run["meant"]) and not (learns_less and one.get("code") in LEARNED_LESS)
    ]  # fmt: skip


def loud(healthy: Sequence[Run]) -> set[str]:
    """The rules that warn of more than MOST_WARNED of the healthy runs."""
    warned = [{one["rule"] for one in false_words(run) if one["says"] == "warning"} for run in healthy]
    rules = {rule for some in warned for rule in some}
    return {rule for rule in rules if sum(rule in some for some in warned) > MOST_WARNED * len(healthy)}


@dataclass(frozen=True)
class Without:
    """A mechanism whose rules are left out: faults by name that are found with all rules, and without its own.

    `right` are those of `known` where what is told first names the fault. `asked` are those whose parts were exchanged,
    and `named_right` those of them that are found without the mechanism's rules, and whose exchange names a part that
    holds the mistake. In `right_asking` the answer of the exchange stands before what the rules tell, if it names a
    part: it is counted of `known` and `asked` together, and only where a rule has given reason to ask. `right_always`
    are the same by part, if the exchange named that part whatever it is asked of.
    """

    mechanism: str
    faults: tuple[str, ...]
    found_with_all: tuple[str, ...]
    found: tuple[str, ...]
    found_by_principles: tuple[str, ...]
    known: tuple[str, ...]
    right_with_all: tuple[str, ...]
    right: tuple[str, ...]
    asked: tuple[str, ...] = ()
    named_right: tuple[str, ...] = ()
    right_asking: tuple[str, ...] = ()
    right_always: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def known_or_asked(self) -> list[str]:
        return [fault for fault in self.faults if fault in self.known or fault in self.asked]

    @property
    def missed(self) -> list[str]:
        return [fault for fault in self.faults if fault not in self.found]


def without(mechanism: Mechanism, runs: Sequence[Run], loud: Collection[str], principles: Sequence[str]) -> Without:
    """The mechanism's faults with all rules, without its own, and with principles alone."""
    mine = [run for run in runs if mechanism.has(run)]
    every = {run["fault"]: told(run, loud) for run in mine}
    others = {fault: [one for one in words if not mechanism.knows(one["rule"])] for fault, words in every.items()}
    known = [run for run in mine if run["named"] or run["causes"]]

    def right(words: Mapping[str, list[Mapping[str, Any]]]) -> tuple[str, ...]:
        return tuple(run["fault"] for run in known if words[run["fault"]] and is_right(words[run["fault"]][0], run))

    every_part = sorted({part for run in runs for part in run.get("parts", ())})
    parts = {run["fault"]: tuple(run.get("parts", ())) for run in mine}
    named = {run["fault"]: part_named(run) for run in mine}
    asked = tuple(run["fault"] for run in mine if was_asked(run) and parts[run["fault"]])
    by_rules = right(others)
    asking = [fault for fault, part in named.items() if part is None and fault in by_rules]
    asking += [fault for fault, part in named.items() if part in parts[fault] and others[fault]]
    answered = {run["fault"] for run in mine if was_asked(run)}

    def always(part: str) -> tuple[str, ...]:
        return tuple(
            fault for fault in every
            if (part in parts[fault] and others[fault] if fault in answered else fault in by_rules)
        )  # fmt: skip

    return Without(
        mechanism.id, tuple(every), tuple(fault for fault, words in every.items() if words),
        tuple(fault for fault, words in others.items() if words),
        tuple(fault for fault, words in others.items() if any(matches(one["rule"], principles) for one in words)),
        tuple(run["fault"] for run in known), right(every), by_rules, asked,
        tuple(fault for fault in asked if named[fault] in parts[fault] and others[fault]),
        tuple(fault for fault in every if fault in asking), {part: always(part) for part in every_part},
    )  # fmt: skip


def was_asked(run: Run) -> bool:
    """Whether the exchange answered of the run: at least one exchange was held against the training as it is."""
    return run.get("exchange") is not None and not why_not_asked(run["exchange"])


def why_not_asked(exchange: Mapping[str, Any]) -> str:
    """Why the exchange has no answer, "" if it has: what raises has shown nothing of any part."""
    if exchange["why_not"] or exchange["broke"]:
        return str(exchange["why_not"] or f"the training as it is raised {exchange['broke']}")
    if any(one["gain"] is not None for one in exchange["exchanges"]):
        return ""
    raised = next((one["told"] for one in exchange["exchanges"] if one["code"] == "raised"), None)
    return "no part could be exchanged" if raised is None else f"every exchange raised {raised}"


def part_named(run: Run) -> str | None:
    """The part that the exchange says is at fault; None if none, or if it was not asked."""
    return run["exchange"]["part"] if was_asked(run) else None


def is_right(one: Mapping[str, Any], run: Run) -> bool:
    """True if it names the fault: a monitor by its cause, where the bench knows causes; else a rule by itself."""
    if one["cause"] and run["causes"]:
        return one["cause"] in run["causes"]
    return matches(one["rule"], run["named"])


@dataclass(frozen=True)
class Rule:
    """What a rule adds over all others: faults that it alone finds, or finds in an earlier stage.

    `names` are those of which the right thing is told first with it, and another thing without it. `beyond` are those
    that no principle finds, `before` those that principles find in a later stage alone.
    """

    id: str
    found: tuple[str, ...]
    alone: tuple[str, ...]
    earlier: tuple[str, ...]
    names: tuple[str, ...]
    beyond: tuple[str, ...]
    before: tuple[str, ...]
    saved_cpu: float
    false_alarms: tuple[str, ...]
    false_warnings: tuple[str, ...]
    cpu: float

    @property
    def adds(self) -> bool:
        return bool(self.alone or self.earlier or self.names)


def rules(
    runs: Sequence[Run], loud: Collection[str], principles: Sequence[str] = (), left_out: Collection[str] = ()
) -> list[Rule]:
    """Each rule beside all others that are not left out."""
    names = dict.fromkeys(one["rule"] for run in runs for one in run["told"] if not one["rule"].startswith("("))
    return [rule(name, runs, loud, principles, left_out) for name in names if name not in left_out]


def rule(
    name: str, runs: Sequence[Run], loud: Collection[str], principles: Sequence[str] = (),
    left_out: Collection[str] = (),
) -> Rule:  # fmt: skip
    by: dict[str, list[str]] = {word: [] for word in ("found", "alone", "earlier", "names", "beyond", "before")}
    saved = 0.0
    for run in (run for run in runs if run["fault"]):
        words = [one for one in told(run, loud) if one["rule"] not in left_out]
        rest = [one for one in words if one["rule"] != name]
        stage = _first_stage([one for one in words if one["rule"] == name])
        others = _first_stage([one for one in rest if not is_sum(one["rule"])])
        general = _first_stage([one for one in rest if matches(one["rule"], principles)])
        if stage == NEVER:
            continue
        held = {
            "found": True, "alone": others == NEVER, "earlier": stage < others < NEVER,
            "names": is_right(words[0], run) and bool(rest) and not is_right(rest[0], run),
            "beyond": general == NEVER, "before": stage < general < NEVER,
        }  # fmt: skip
        for word in (word for word, holds in held.items() if holds):
            by[word].append(run["fault"])
        saved += _cpu_of_training(run) if held["earlier"] else 0.0
    healthy = [
        (run["name"], one["says"]) for run in runs if not run["fault"] for one in false_words(run)
        if one["rule"] == name
    ]  # fmt: skip
    cpu = [one["cpu"] for run in runs for one in run["told"] if one["rule"] == name]
    return Rule(
        id=name, saved_cpu=saved, cpu=statistics.mean(cpu) if cpu else 0.0,
        false_alarms=tuple(run for run, says in healthy if says == "alarm"),
        false_warnings=tuple(run for run, says in healthy if says == "warning"),
        **{word: tuple(faults) for word, faults in by.items()},
    )  # fmt: skip


NEVER = len(STAGES)


def _first_stage(words: Sequence[Mapping[str, Any]]) -> int:
    return min((STAGES.index(one["stage"]) for one in words), default=NEVER)


def is_sum(rule: str) -> bool:
    """True for a check that only tells again what monitors told."""
    return rule == "stage.monitors"


def _cpu_of_training(run: Run) -> float:
    """CPU seconds of all stages after preflight."""
    return max(0.0, run["cpu"] - sum(one["cpu"] for one in run["told"] if one["stage"] == "preflight"))


def not_needed(runs: Sequence[Run], loud: Collection[str], kept: Callable[[str], bool]) -> list[str]:
    """Rules that can all be left out together: no fault is lost, found in a later stage, or told otherwise first.

    The dearest first, since two that find the same may each be left out, but not both. Only rules that told something.
    """
    left_out: list[str] = []
    for one in sorted(rules(runs, loud), key=lambda one: (-len(one.false_alarms), -len(one.false_warnings), -one.cpu)):
        if one.found and not kept(one.id) and not rule(one.id, runs, loud, left_out=left_out).adds:
            left_out.append(one.id)
    return left_out


Told = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """A rule whose figure is told above its threshold, or below it; figures as ratios to the threshold of their run.

    `healthy` are those of healthy runs that passed, with their hosts. Of n hosts a further one, if it is no other than
    they are, lies beyond the extreme of all with probability 1 / (n + 1): that is the rate of a limit that is set anew.
    """

    rule: str
    above: bool
    figures: tuple[tuple[Run, Told], ...]
    healthy: tuple[tuple[str, float], ...]

    def limit(self, host: str) -> float:
        """The extreme of the healthy runs of other hosts; of all where there is no other."""
        others = [value for other, value in self.healthy if other != host] or [value for _, value in self.healthy]
        return max(others) if self.above else min(others)

    def beyond(self, ratio: float, host: str) -> bool:
        return ratio > self.limit(host) if self.above else ratio < self.limit(host)


def sides(runs: Sequence[Run]) -> dict[tuple[str, bool], Side]:
    """Each rule and side of which healthy runs have a figure and a threshold above 0, and which told of a fault.

    A rule whose healthy figures lie on both sides of what it calls its threshold decides by more than the two.
    """
    figures: dict[tuple[str, bool], list[tuple[Run, Told]]] = {}
    for run in runs:
        for one in run["told"]:
            if (side := _side(one)) is not None:
                figures.setdefault((one["rule"], side), []).append((run, one))
    found = {}
    for (rule, above), both in figures.items():
        healthy = tuple((run["host"], _ratio(one)) for run, one in both if not run["fault"] and one["says"] == "pass")
        if healthy:
            found[rule, above] = Side(rule, above, tuple(both), healthy)
    return {
        (rule, above): side for (rule, above), side in found.items()
        if (rule, not above) not in found and any(run["fault"] and one["says"] != "pass" for run, one in side.figures)
    }  # fmt: skip


def _side(one: Told) -> bool | None:
    """True if it is told above its threshold; None without a figure to hold against one."""
    if one["observed"] is None or not (one["threshold"] or 0) > 0 or one["says"] == "unknown":
        return None
    return (one["observed"] > one["threshold"]) == (one["says"] != "pass")


def _ratio(one: Told) -> float:
    return float(one["observed"] / one["threshold"])


def anew(run: Run, known: Mapping[tuple[str, bool], Side]) -> Run:
    """The run as it would be told with each threshold set by the healthy runs of other hosts."""

    def says(one: Told) -> str:
        side = known.get((one["rule"], above)) if (above := _side(one)) is not None else None
        if side is None or side.beyond(_ratio(one), run["host"]) == (one["says"] != "pass"):
            return str(one["says"])
        return "pass" if one["says"] != "pass" else "alarm"

    return {**run, "told": [{**one, "says": says(one)} for one in run["told"]]}


@dataclass(frozen=True)
class Threshold:
    """A side's thresholds, the extreme of healthy runs and the figures of told faults, as ratios.

    With the limit set anew: `still` are told faults beyond it, `lost` those within, `newly` those that are not told
    today; `hosts` are healthy ones beyond what the others give.
    """

    rule: str
    above: bool
    thresholds: tuple[float, ...]
    healthy: int
    extreme: float
    faulty: tuple[float, ...]
    still: tuple[str, ...]
    lost: tuple[str, ...]
    newly: tuple[str, ...]
    hosts: tuple[str, ...]


def threshold(side: Side) -> Threshold:
    faults = [(run, one) for run, one in side.figures if run["fault"]]

    def names(is_told: bool, is_beyond: bool) -> tuple[str, ...]:
        found = (
            run["fault"] for run, one in faults
            if (one["says"] != "pass") == is_told and side.beyond(_ratio(one), run["host"]) == is_beyond
        )  # fmt: skip
        return tuple(dict.fromkeys(found))

    return Threshold(
        side.rule, side.above, tuple(sorted({float(f"{one['threshold']:.3g}") for _, one in side.figures})),
        len(side.healthy), side.limit(""), tuple(sorted(_ratio(one) for _, one in faults if one["says"] != "pass")),
        names(True, True), names(True, False), names(False, True),
        tuple(sorted({host for host, value in side.healthy if side.beyond(value, host)})),
    )  # fmt: skip
