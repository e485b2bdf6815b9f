"""Which checks, monitors and causes keep their place: each left out, each mechanism without the rules that know it.

Every planted fault and every healthy training that this repository has goes through what there is for it
(general_runs.py): preflight's battery, a training with its monitors, smoke and pilot. What each rule says of each is
kept in a file, a line a case, so that a run that was interrupted goes on, and all tables are made without a run:

- for each mechanism (general.toml) its faults without the rules that were written for it, by the rules alone and with
  the exchange of parts (`trainworthy diagnose --all`), whose answer stands first where a case has rows;
- for each rule what it finds that no other does, or none as early, what it says of healthy runs, and its CPU seconds;
- for each threshold the extremes of healthy runs and faults, and what is found with the extreme of other hosts.

Not run: faults of time, memory and several processes, and what needs a GPU.

    make bench NAME=general                                two hours of one core, or a minute from a whole file
    python -m benchmarks.general --out /tmp/runs.jsonl     where the file is; default below the state folder
"""

from __future__ import annotations

import json
import statistics
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.general_runs import EXCHANGE, PILOT, asked, cases, piloted, ran
from benchmarks.general_tables import (
    Mechanism,
    Rule,
    Run,
    Threshold,
    Without,
    anew,
    false_words,
    is_sum,
    loud,
    lower_bound,
    matches,
    not_needed,
    part_named,
    rules,
    sides,
    threshold,
    was_asked,
    why_not_asked,
    without,
)
from benchmarks.result import arguments, begin, finish
from trainworthy.resources.settings import read_settings

TABLE = Path(__file__).with_suffix(".toml")
TARGETS = {
    "missed_without_own_rules": 0.15, "cause_wrong_without_own_rules": 0.25, "healthy_alarmed": 0.01,
    "healthy_part_named": 0.01,
}  # fmt: skip


def main() -> None:
    """Run the cases that the file lacks, then print the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, help="the file of runs; what it holds is not run again")
    parser.add_argument("--tables", action="store_true", help="of the runs that the file holds, without running more")
    given = parser.parse_args()
    begin(given.short)
    # The networks are so small that a second thread costs more than it gives.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or (Path(folder) if given.short else read_settings().var) / "general.jsonl"
        runs = _runs(out, given.short, given.tables)
    figures = _tables(runs)
    finish("general", figures, TARGETS, short=given.short, zero_allowed=tuple(figures))


def mechanisms() -> tuple[list[Mechanism], tuple[str, ...], dict[str, str]]:
    """Those of general.toml, the rules that say what a sound training does, and the units of figures by rule."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    made = [
        Mechanism(one["id"], tuple(one["faults"]), tuple(one["rules"]), tuple(one["parts"]))
        for one in table["mechanism"]
    ]
    return made, tuple(table["principles"]), table["units"]


def parts_by_fault() -> dict[str, tuple[str, ...]]:
    """The parts that hold a mistake, by patterns of faults that lie elsewhere than their mechanism's."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {fault: tuple(parts) for fault, parts in table["parts_of"].items()}


def meant_by_host() -> dict[str, tuple[str, ...]]:
    """The rules that say something true of a healthy case, by its host."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {host: tuple(rules) for host, rules in table["meant"].items()}


def _runs(out: Path, short: bool, stored: bool) -> list[Run]:
    """What the file holds of today's cases, after what it lacks was run; `stored`: nothing is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {} if not out.is_file() else {run["name"]: run for run in map(json.loads, out.read_text().splitlines())}
    wanted = cases(short)
    for case in wanted if not stored else ():
        todo = {case.name: ran}
        if case.job is not None:
            todo |= {f"{EXCHANGE}{case.name}": asked} | ({f"{PILOT}{case.name}": piloted} if case.tensors else {})
        for name, run in todo.items():
            if name not in done:
                done[name] = _kept(out, run(case))
    lacking = [case.name for case in wanted if case.name not in done]
    print(f"{len(wanted) - len(lacking)} of {len(wanted)} cases; not run: {', '.join(lacking) or 'none'}", flush=True)
    return [_together(done, case.name) for case in wanted if case.name in done]


def _together(done: Mapping[str, Run], name: str) -> Run:
    """The run with what its pilot told, and the answer of the exchange, where these were run."""
    pilot = done.get(f"{PILOT}{name}", {"told": (), "broke": ""})
    return {
        **done[name], "told": [*done[name]["told"], *pilot["told"]], "pilot_broke": pilot["broke"],
        "exchange": done.get(f"{EXCHANGE}{name}"),
    }  # fmt: skip


def _kept(out: Path, run: Run) -> Run:
    """The run, once it stands in the file."""
    with out.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(run) + "\n")
    return run


def _tables(runs: Sequence[Run]) -> dict[str, float]:
    """Print all tables; the figures."""
    made, principles, units = mechanisms()
    elsewhere = parts_by_fault()
    meant = meant_by_host()
    runs = [_with_meant(_with_parts(_with_own_rules(run, made), made, elsewhere), meant) for run in runs]
    healthy, faulty = ([run for run in runs if bool(run["fault"]) == planted] for planted in (False, True))
    quiet, known = loud(healthy), sides(runs)
    print(f"warnings that count for nothing, as more than 5 % of healthy runs have them: {_or_none(sorted(quiet))}")
    left = [without(mechanism, faulty, quiet, principles) for mechanism in made]
    again = [without(mechanism, [anew(run, known) for run in faulty], quiet, principles) for mechanism in made]
    _print_without([(one, other) for one, other in zip(left, again, strict=True) if one.faults])
    _print_asked(left)
    _print_other_parts(faulty)
    print(f"not asked, faults: {_why_not_asked(faulty)}\nnot asked, healthy: {_why_not_asked(healthy)}")
    _print_rules(rules(runs, quiet, principles))
    needless = not_needed(runs, quiet, lambda rule: matches(rule, principles) or is_sum(rule))
    print(f"\ntogether without a loss on these faults: {_or_none(needless)}")
    _print_thresholds([threshold(side) for side in known.values()], units)
    broke = [f"{run['name']} ({run['broke']})" for run in runs if run["broke"]]
    print(f"\nended by an error: {_or_none(broke)}")
    for which, some in (("faults", faulty), ("healthy", healthy)):
        broke = [f"{run['name']} ({run['pilot_broke']})" for run in some if run["pilot_broke"]]
        print(f"pilots ended by an error, {which}: {len(broke)}: {_or_none(broke)}")
    alarmed, alarmed_anew = (_alarmed(some) for some in (healthy, [anew(run, known) for run in healthy]))
    truly = _alarmed([{**run, "meant": ()} for run in healthy if run["name"] not in alarmed])
    warned = {run["name"]: ", ".join({one["rule"] for one in false_words(run)}) for run in healthy if false_words(run)}
    print(f"healthy, alarmed: {_named(alarmed)}\nand truly so: {_named(truly)}")
    print(f"healthy, alarmed with thresholds anew: {_named(alarmed_anew)}")
    print(f"healthy, alarmed or warned: {'; '.join(f'{name}: {rule}' for name, rule in warned.items()) or 'none'}")
    named = {run["name"]: part for run in healthy if (part := part_named(run)) is not None}
    answers = [run["exchange"] for run in (*faulty, *healthy) if was_asked(run)]
    named_told = "; ".join(f"{name}: {part}" for name, part in named.items())
    print(f"healthy, a part named: {named_told or 'none'}")
    faults, known_causes = sum(len(one.faults) for one in left), sum(len(one.known) for one in left)
    found, right = sum(len(one.found) for one in left), sum(len(one.right) for one in left)
    parts_asked, asking = sum(len(one.asked) for one in left), sum(len(one.right_asking) for one in left)
    known_or_asked = sum(len(one.known_or_asked) for one in left)
    healthy_asked = sum(map(was_asked, healthy))
    # By rules alone of all that the exchange is counted of, and the part that would score most if it were always named.
    rules_of_all = sum(len({*one.right} & {*one.known_or_asked}) for one in left)
    always = Counter({part: sum(len(one.right_always[part]) for one in left) for part in _parts(left)})
    (constant, constant_right), *_ = always.most_common(1) or [("none", 0)]
    print(f"right first if always the same part were named: {dict(always.most_common())} of {known_or_asked}")
    told = {fault for one in left for fault in one.asked if fault in one.found}
    held = Counter(part for run in faulty if run["fault"] in told for part in run["parts"])
    named_right = sum(len(one.named_right) for one in left)
    print(
        f"asked, and told by a rule: {len(told)}, a right part named {named_right}; held by: {dict(held.most_common())}"
    )
    return {
        "faults": faults, "healthy": len(healthy),
        "missed": 1 - sum(len(one.found_with_all) for one in left) / max(1, faults),
        "missed_without_own_rules": 1 - found / max(1, faults),
        "found_without_own_rules_lower": lower_bound(found, faults),
        "missed_without_own_rules_anew": 1 - sum(len(one.found) for one in again) / max(1, faults),
        "found_by_principles": sum(len(one.found_by_principles) for one in left) / max(1, faults),
        "cause_wrong": 1 - sum(len(one.right_with_all) for one in left) / max(1, known_causes),
        "cause_wrong_by_rules_alone": 1 - right / max(1, known_causes), "causes_known": known_causes,
        "cause_wrong_without_own_rules": 1 - asking / max(1, known_or_asked), "causes_known_or_asked": known_or_asked,
        "cause_wrong_without_own_rules_by_rules_alone": 1 - rules_of_all / max(1, known_or_asked),
        f"cause_wrong_without_own_rules_always_{constant}": 1 - constant_right / max(1, known_or_asked),
        "cause_right_without_own_rules_lower": lower_bound(asking, known_or_asked),
        "asked": parts_asked, "asked_part_wrong": 1 - named_right / max(1, parts_asked),
        "healthy_asked": healthy_asked, "healthy_part_named": len(named) / max(1, healthy_asked),
        "exchange_cpu_s_median": statistics.median(one["cpu"] for one in answers) if answers else 0.0,
        "healthy_alarmed": len(alarmed) / max(1, len(healthy)),
        "healthy_alarmed_truly": len(truly) / max(1, len(healthy)),
        "healthy_alarmed_anew": len(alarmed_anew) / max(1, len(healthy)),
        "healthy_warned": len(warned.keys() - alarmed.keys()) / max(1, len(healthy)),
    }  # fmt: skip


def _with_own_rules(run: Run, made: Sequence[Mechanism]) -> Run:
    """The run with the rules of its mechanism among those that name the fault, where the bench knows such."""
    own = [rule for mechanism in made if run["named"] and mechanism.has(run) for rule in mechanism.rules]
    return {**run, "named": [*run["named"], *own]}


def _with_parts(run: Run, made: Sequence[Mechanism], elsewhere: Mapping[str, tuple[str, ...]]) -> Run:
    """The run with the parts that hold its fault."""
    own = [parts for fault, parts in elsewhere.items() if matches(run["fault"], (fault,))]
    of_mechanism = [mechanism.parts for mechanism in made if mechanism.has(run)]
    return {**run, "parts": next(iter((*own, *of_mechanism)), ())}


def _with_meant(run: Run, meant: Mapping[str, tuple[str, ...]]) -> Run:
    """The run with all rules that say something true of it, where nothing is planted."""
    return run if run["fault"] else {**run, "meant": [*run["meant"], *meant.get(run["host"], ())]}


def _parts(left: Sequence[Without]) -> list[str]:
    return sorted({part for one in left for part in one.right_always})


def _alarmed(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The rules that alarmed, by the run's name, of those where any did."""
    told = {run["name"]: sorted({one["rule"] for one in false_words(run) if one["says"] == "alarm"}) for run in runs}
    return {name: found for name, found in told.items() if found}


def _named(alarmed: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(found)}" for name, found in alarmed.items()) or "none"


def _or_none(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _print_without(left: Sequence[tuple[Without, Without]]) -> None:
    """Each mechanism with its rules, without them, and without them with all thresholds set anew."""
    _head(
        "mechanism", "faults", "found with all", "without its own", "lower bound", "thresholds anew", "by principles",
        "right first, of known: with all, without", "missed without its own",
    )  # fmt: skip
    for one, again in left:
        _row(
            one.mechanism, len(one.faults), len(one.found_with_all), len(one.found),
            f"{lower_bound(len(one.found), len(one.faults)):.2f}", len(again.found), len(one.found_by_principles),
            f"{len(one.right_with_all)}, {len(one.right)} of {len(one.known)}", ", ".join(one.missed) or "–",
        )  # fmt: skip


def _print_asked(left: Sequence[Without]) -> None:
    """Each mechanism that the exchange of parts could be asked of, without its own rules."""
    _head(
        "mechanism", "asked", "found without its own", "of these a right part named", "known or asked",
        "right first, the exchange before the rules",
    )  # fmt: skip
    for one in (one for one in left if one.asked):
        found = [fault for fault in one.asked if fault in one.found]
        _row(
            one.mechanism, len(one.asked), len(found), len(one.named_right), len(one.known_or_asked),
            len(one.right_asking),
        )  # fmt: skip


def _print_other_parts(faulty: Sequence[Run]) -> None:
    """The faults whose exchange names a part that does not hold them, and those of which it names none."""
    asked = [run for run in faulty if was_asked(run) and run["parts"]]
    other = [f"{run['fault']}: {part}" for run in asked if (part := part_named(run)) not in (*run["parts"], None)]
    print(f"\nanother part named: {'; '.join(other) or 'none'}")
    print(f"no part named: {_or_none(run['fault'] for run in asked if part_named(run) is None)}")


def _why_not_asked(runs: Sequence[Run]) -> str:
    reasons = Counter(why_not_asked(run["exchange"]) for run in runs if run["exchange"] and not was_asked(run))
    return "; ".join(f"{count} {why}" for why, count in reasons.most_common()) or "none"


def _print_rules(every: Sequence[Rule]) -> None:
    _head(
        "rule", "found", "only by it", "earlier only by it", "named first only by it", "that no principle finds",
        "earlier than principles", "CPU s of trainings saved", "healthy alarmed, warned", "CPU s a run",
        "only by it, by name",
    )  # fmt: skip

    def order(one: Rule) -> tuple[int, ...]:
        return -len(one.alone), -len(one.earlier), -len(one.names), -len(one.beyond), -len(one.found)

    for one in sorted(every, key=order):
        counts = (one.found, one.alone, one.earlier, one.names, one.beyond, one.before)
        _row(
            f"`{one.id}`", *map(len, counts), f"{one.saved_cpu:.0f}",
            f"{len(one.false_alarms)}, {len(one.false_warnings)}", f"{one.cpu:.3f}", ", ".join(one.alone) or "–",
        )  # fmt: skip


def _print_thresholds(found: Sequence[Threshold], units: Mapping[str, str]) -> None:
    """Figures as ratios to the threshold of their own run, which may follow from the network or its rows."""
    _head(
        "rule, side", "thresholds", "unit", "healthy figures", "healthy extreme", "faults told", "nearest of them",
        "still told anew", "lost", "newly told", "healthy hosts beyond the others",
    )  # fmt: skip
    for one in sorted(found, key=lambda one: (one.rule, one.above)):
        nearest = (min if one.above else max)(one.faulty)
        _row(
            f"`{one.rule}`, {'above' if one.above else 'below'}", _listed(one.thresholds), units.get(one.rule, "–"),
            one.healthy, f"{one.extreme:.3g}", len(one.faulty), f"{nearest:.3g}", len(one.still),
            ", ".join(one.lost) or "–", len(one.newly), ", ".join(one.hosts) or "–",
        )  # fmt: skip


def _head(*columns: str) -> None:
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


def _row(*values: object) -> None:
    print(f"| {' | '.join(str(value) for value in values)} |")


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values) if len(values) <= 4 else f"{values[0]:g} to {values[-1]:g}"


if __name__ == "__main__":
    main()
