"""trainworthy explain: what a check, a monitor or a cause is about, what to do, and how well it does on benchmarks.

And what the functions of model.py give, which are rows of `trainworthy check`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainworthy.pipeline import explained
from trainworthy.pipeline.commands import Subparsers
from trainworthy.pipeline.explain_words import WIDTH

if TYPE_CHECKING:
    # At run time it would cost every command a quarter of its start.
    from trainworthy.lifecycle.errors import TrainworthyError

# Of 1,363 slips of a letter in the ids 1,362 are this near to theirs. At difflib's 0.6, 242 of 289 ids are near others.
NEAR = 0.8
# What a shell and a container's exit code add to a signal's number.
SHELL_SIGNAL = 128
Lines = Callable[[], Iterator[str]]


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "explain", help="what a check or monitor asks, its cause, its fix and its record; without one, all"
    )
    parser.add_argument(
        "check",
        nargs="?",
        help="an id such as inputs.finite, stage.references, loss_spike or dataset.unknown_version, a family such as "
        "inputs, the class of an error, or the exit code of a training's process, such as 76, -9 or 137",
    )
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print what has that id, a family's checks, or the list of all."""
    from trainworthy.lifecycle.errors import nearest
    from trainworthy.lifecycle.gates.findings import verdict_codes

    known, rulings = _known(), verdict_codes()
    if parsed.check is None:
        print("\n".join(_list({*known, *rulings})))
        return 0
    for name in _spellings(parsed.check):
        if name in known:
            print("\n".join(dict.fromkeys("\n".join(lines()) for lines in known[name])))
            return 0
        if name in rulings:
            print("\n".join(explained.of_ruling(name, *rulings[name])))
            return 0
    near = nearest(parsed.check, {*known, *rulings}, likeness=NEAR)
    fix = (
        f"did you mean {near!r}?"
        if near
        else "trainworthy explain lists all ids; own.<name> is check_<name> of model.py"
    )
    print(f"nothing has this id\n  value: {parsed.check!r}\n  fix: {fix}", file=sys.stderr)
    return 1


def _spellings(asked: str) -> Iterator[str]:
    """What was asked for as an id, in the ways in which reports and logs write it: "full/references", "loss rise"."""
    from trainworthy.lifecycle.protocol.records import STEPS

    yield _by_signal(asked) or asked
    # The code of a worker's end names behind the cause what was raised, which is no id.
    if asked.startswith("worker."):
        yield ".".join(asked.split(".")[:2])
    # A step before a check's name; then one of a use case's own, which only its family is known of.
    step, _, check = asked.replace("/", ".").partition(".")
    if step.strip() in STEPS:
        yield check.strip().replace(" ", "_")
        step = check.partition(".")[0]
    if step == "own":
        yield step
    yield asked.strip().replace(" ", "_")
    yield from (asked.lower(), asked.lower().replace(" ", "_"))
    # A metric of a class or a quantile, and one of the validation split.
    yield asked.partition("[")[0]
    yield asked.partition(" of ")[0]
    yield asked.removeprefix("val_")


def _known() -> dict[str, list[Lines]]:
    """What is printed of each id and family. A monitor and a cause may have one id: both are printed."""
    from trainworthy.lifecycle.gates.catalogue import CATALOGUE
    from trainworthy.lifecycle.gates.monitor_words import CAUSES, MONITORS
    from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
    from trainworthy.lifecycle.gates.step_checks import STEP_CHECKS
    from trainworthy.lifecycle.protocol.checks import RENAMED

    known: dict[str, list[Lines]] = {}
    for check in STAGE_CHECKS:
        # By the check's own name as well, which is what Dagster and the report call it.
        known[check.id] = known[check.name] = [lambda check=check: explained.of_stage_check(check)]
        known.setdefault(check.id.partition(".")[0], []).append(lambda check=check: iter([explained.row(check)]))
    for name, today in RENAMED.items():
        known[name] = known[f"stage.{name}"] = known[today]
    for family in {check.family for check in CATALOGUE}:
        checks = [check for check in CATALOGUE if check.family == family]
        known[family] = [lambda checks=checks: (explained.row(check) for check in checks)]
    known |= {check.id: [lambda check=check: explained.of_check(check)] for check in CATALOGUE}
    for step_check in STEP_CHECKS:
        known.setdefault(step_check.name, [lambda step_check=step_check: explained.of_step_check(step_check)])
    known |= {monitor.id: [lambda monitor=monitor: explained.of_monitor(monitor)] for monitor in MONITORS}
    for name in dict.fromkeys(cause.id for cause in CAUSES):
        cases = [cause for cause in CAUSES if cause.id == name]
        known.setdefault(name, []).append(lambda name=name, cases=cases: explained.of_cause(name, cases))
    _add_findings(known)
    _add_codes(known)
    _add_terms(known)
    return known


def _add_terms(known: dict[str, list[Lines]]) -> None:
    """Words of reports, behind what else has that name: a check may be called by a term."""
    from trainworthy.lifecycle.gates.terms import TERMS

    for term in TERMS:
        for name in (term.id, *term.also):
            known.setdefault(name, []).append(lambda term=term: explained.of_term(term))


def _add_findings(known: dict[str, list[Lines]]) -> None:
    """What records and reports name beside checks. A short name may be that of several: all of them are printed."""
    from trainworthy.lifecycle.gates.catalogue import CATALOGUE
    from trainworthy.lifecycle.gates.diagnosis import ORDER
    from trainworthy.lifecycle.gates.findings import LEAKS, RULES
    from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
    from trainworthy.lifecycle.protocol.leak import TAXONOMY
    from trainworthy.lifecycle.task import OPTIONAL_FUNCTIONS, REQUIRED_FUNCTIONS

    for name in (*REQUIRED_FUNCTIONS, *OPTIONAL_FUNCTIONS, "forward"):
        known.setdefault(name, []).append(lambda name=name: explained.of_function(name))
    for taxon in TAXONOMY:
        known[taxon] = [lambda taxon=taxon: explained.of_taxon(taxon)]
    for leak in LEAKS:
        known.setdefault(leak.id, []).append(lambda leak=leak: explained.of_leak(leak))
    for check in CATALOGUE:
        short = check.id.partition(".")[2]
        if short:
            known.setdefault(short, []).append(lambda check=check: explained.of_check(check))
    for rule in RULES:
        known.setdefault(rule.id, []).append(lambda rule=rule: explained.of_rule(rule))
    for stage_check in STAGE_CHECKS:
        for code, fix in stage_check.fixes.items():
            known.setdefault(code, []).append(
                lambda check=stage_check, code=code, fix=fix: explained.of_stage_code(check, code, fix)
            )
    for part in ORDER:
        known.setdefault(part, []).append(lambda part=part: explained.of_part(part))


def _add_codes(known: dict[str, list[Lines]]) -> None:
    """Codes of findings and errors, classes of errors, and ends of a training's process by cause and by exit code."""
    from trainworthy.lifecycle.errors import FROM_WORKER
    from trainworthy.lifecycle.gates.codes import CODES, DECISIONS, ENDS

    for decision in DECISIONS:
        known[decision.id] = [lambda decision=decision: explained.of_decision(decision)]
    for code in CODES:
        known.setdefault(code.id, []).append(lambda code=code: explained.of_code(code))
    for error in _errors():
        known.setdefault(error.__name__, []).append(lambda error=error: explained.of_error(error))
    for end in ENDS:
        for name in (end.id, f"{FROM_WORKER}{end.id}", *([str(end.exit)] if end.exit is not None else [])):
            known.setdefault(name, []).append(lambda end=end: explained.of_end(end))


def _errors() -> list[type[TrainworthyError]]:
    """The classes of errors, those of a class behind it."""
    from trainworthy.lifecycle.errors import TrainworthyError
    from trainworthy.resources import dagster_private  # noqa: F401  (it has a class of its own)

    found, open_classes = [], [TrainworthyError]
    while open_classes:
        kinds = open_classes.pop().__subclasses__()
        found += kinds
        open_classes += kinds
    return found


def _by_signal(name: str) -> str:
    """The end of a process with this exit code, if a signal gave it: below zero, or above 128 as a shell says it."""
    from trainworthy.lifecycle.failure import STOP_SIGNALS

    try:
        code = int(name)
        number = signal.Signals(-code if code < 0 else code - SHELL_SIGNAL)
    except ValueError:
        return ""
    return "preempted" if number in STOP_SIGNALS else "killed"


def _list(names: set[str]) -> Iterator[str]:
    """A line for each thing that can be explained, then its other names."""
    lines = list(_listed())
    yield from lines
    others = sorted(names - {line.split()[0] for line in lines})
    yield from textwrap.wrap(f"other names: {', '.join(others)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _listed() -> Iterator[str]:
    from trainworthy.lifecycle.errors import FROM_WORKER
    from trainworthy.lifecycle.gates.catalogue import CATALOGUE
    from trainworthy.lifecycle.gates.codes import CODES, DECISIONS, ENDS
    from trainworthy.lifecycle.gates.findings import LEAKS, RULES
    from trainworthy.lifecycle.gates.monitor_words import CAUSES, MONITORS
    from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
    from trainworthy.lifecycle.gates.step_checks import QUESTIONS, STEP_CHECKS

    yield from (f"{check.name:<40} {check.question}" for check in STEP_CHECKS)
    yield from map(explained.row, (*CATALOGUE, *STAGE_CHECKS, *MONITORS))
    for name in dict.fromkeys(cause.id for cause in CAUSES):
        yield f"{name:<40} a cause that alarms name"
    yield from (f"{leak.id:<40} {leak.question}" for leak in LEAKS)
    yield from (f"{rule.id:<40} {rule.question}" for rule in RULES if rule.id not in QUESTIONS)
    yield from dict.fromkeys(f"{code.id:<40} what {code.of} says" for code in CODES)
    yield from (f"{decision.id:<40} what a verdict decides" for decision in DECISIONS)
    yield from (f"{error.__name__:<40} {explained.meaning(error)}" for error in _errors())
    for end in ENDS:
        yield f"{end.id:<40} how a training's process ended: {explained.exits(end)}"
        yield f"{FROM_WORKER + end.id:<40} the code of the error that it leaves"
    for code in sorted({end.exit for end in ENDS if end.exit is not None}):
        yield f"{code:<40} an exit code of a training's process"
