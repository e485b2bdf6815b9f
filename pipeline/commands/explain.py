"""trainworthy explain: what a check, a monitor or a cause is about, what to do, and how well it does on benchmarks.

And what the functions of model.py give, which are rows of `trainworthy check`.
"""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainworthy.pipeline.commands import Subparsers
from trainworthy.pipeline.explain_words import WIDTH, causes, record, words

if TYPE_CHECKING:
    # At run time it would cost every command a quarter of its start.
    from trainworthy.lifecycle.errors import TrainworthyError
    from trainworthy.lifecycle.gates.check import CheckWords
    from trainworthy.lifecycle.gates.codes import CodeWords, DecisionWords, EndWords
    from trainworthy.lifecycle.gates.findings import LeakWords, RuleWords, StateWords
    from trainworthy.lifecycle.gates.monitor_words import CauseWords, MonitorWords
    from trainworthy.lifecycle.gates.stage_words import StageWords
    from trainworthy.lifecycle.gates.step_checks import StepCheck
    from trainworthy.lifecycle.gates.terms import Term
    from trainworthy.lifecycle.protocol.leak import Taxon
    from trainworthy.lifecycle.protocol.training_figures import Part

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
            print("\n".join(_ruling(name, *rulings[name])))
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
        known[check.id] = known[check.name] = [lambda check=check: _stage_check(check)]
        known.setdefault(check.id.partition(".")[0], []).append(lambda check=check: iter([_row(check)]))
    for name, today in RENAMED.items():
        known[name] = known[f"stage.{name}"] = known[today]
    for family in {check.family for check in CATALOGUE}:
        checks = [check for check in CATALOGUE if check.family == family]
        known[family] = [lambda checks=checks: (_row(check) for check in checks)]
    known |= {check.id: [lambda check=check: _check(check)] for check in CATALOGUE}
    for step_check in STEP_CHECKS:
        known.setdefault(step_check.name, [lambda step_check=step_check: _step_check(step_check)])
    known |= {monitor.id: [lambda monitor=monitor: _monitor(monitor)] for monitor in MONITORS}
    for name in dict.fromkeys(cause.id for cause in CAUSES):
        cases = [cause for cause in CAUSES if cause.id == name]
        known.setdefault(name, []).append(lambda name=name, cases=cases: _cause(name, cases))
    _add_findings(known)
    _add_codes(known)
    _add_terms(known)
    return known


def _add_terms(known: dict[str, list[Lines]]) -> None:
    """Words of reports, behind what else has that name: a check may be called by a term."""
    from trainworthy.lifecycle.gates.terms import TERMS

    for term in TERMS:
        for name in (term.id, *term.also):
            known.setdefault(name, []).append(lambda term=term: _term(term))


def _add_findings(known: dict[str, list[Lines]]) -> None:
    """What records and reports name beside checks. A short name may be that of several: all of them are printed."""
    from trainworthy.lifecycle.gates.catalogue import CATALOGUE
    from trainworthy.lifecycle.gates.diagnosis import ORDER
    from trainworthy.lifecycle.gates.findings import LEAKS, RULES
    from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
    from trainworthy.lifecycle.protocol.leak import TAXONOMY
    from trainworthy.lifecycle.task import OPTIONAL_FUNCTIONS, REQUIRED_FUNCTIONS

    for name in (*REQUIRED_FUNCTIONS, *OPTIONAL_FUNCTIONS, "forward"):
        known.setdefault(name, []).append(lambda name=name: _function(name))
    for taxon in TAXONOMY:
        known[taxon] = [lambda taxon=taxon: _taxon(taxon)]
    for leak in LEAKS:
        known.setdefault(leak.id, []).append(lambda leak=leak: _leak(leak))
    for check in CATALOGUE:
        short = check.id.partition(".")[2]
        if short:
            known.setdefault(short, []).append(lambda check=check: _check(check))
    for rule in RULES:
        known.setdefault(rule.id, []).append(lambda rule=rule: _rule(rule))
    for stage_check in STAGE_CHECKS:
        for code, fix in stage_check.fixes.items():
            known.setdefault(code, []).append(lambda check=stage_check, code=code, fix=fix: _code(check, code, fix))
    for part in ORDER:
        known.setdefault(part, []).append(lambda part=part: _part(part))


def _add_codes(known: dict[str, list[Lines]]) -> None:
    """Codes of findings and errors, classes of errors, and ends of a training's process by cause and by exit code."""
    from trainworthy.lifecycle.errors import FROM_WORKER
    from trainworthy.lifecycle.gates.codes import CODES, DECISIONS, ENDS

    for decision in DECISIONS:
        known[decision.id] = [lambda decision=decision: _decision(decision)]
    for code in CODES:
        known.setdefault(code.id, []).append(lambda code=code: _code_words(code))
    for error in _errors():
        known.setdefault(error.__name__, []).append(lambda error=error: _error(error))
    for end in ENDS:
        for name in (end.id, f"{FROM_WORKER}{end.id}", *([str(end.exit)] if end.exit is not None else [])):
            known.setdefault(name, []).append(lambda end=end: _end(end))


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
    yield from map(_row, (*CATALOGUE, *STAGE_CHECKS, *MONITORS))
    for name in dict.fromkeys(cause.id for cause in CAUSES):
        yield f"{name:<40} a cause that alarms name"
    yield from (f"{leak.id:<40} {leak.question}" for leak in LEAKS)
    yield from (f"{rule.id:<40} {rule.question}" for rule in RULES if rule.id not in QUESTIONS)
    yield from dict.fromkeys(f"{code.id:<40} what {code.of} says" for code in CODES)
    yield from (f"{decision.id:<40} what a verdict decides" for decision in DECISIONS)
    yield from (f"{error.__name__:<40} {_meaning(error)}" for error in _errors())
    for end in ENDS:
        yield f"{end.id:<40} how a training's process ended: {_exits(end)}"
        yield f"{FROM_WORKER + end.id:<40} the code of the error that it leaves"
    for code in sorted({end.exit for end in ENDS if end.exit is not None}):
        yield f"{code:<40} an exit code of a training's process"


def _row(words: CheckWords | StageWords | MonitorWords) -> str:
    return f"{words.id:<40} {words.question}"


def _check(check: CheckWords) -> Iterator[str]:
    stops = "a failure stops the step" if check.severity == "error" else "a failure is a warning and stops nothing"
    yield f"{check.id}: {check.question}"
    yield f"  {stops}"
    yield from words(symptom=check.symptom, cause=check.cause, fix=check.fix)
    if check.after:
        yield f"  asked after: {check.after}"
    if check.follows:
        yield f"  told after, where they failed too: {', '.join(check.follows)}"
    if check.measured_by:
        yield from words(**{"causes measured by": ", ".join(check.measured_by)})
    yield from record(check.id, "checks")
    yield f"  more: docs/preflight/{check.id}.md"
    yield "  where it does not apply, use_case.yaml says so with the reason:"
    yield f"    preflight: {{not_applicable: {{{check.id}: why}}}}"


def _stage_check(check: StageWords) -> Iterator[str]:
    stops = (
        "a failure stops the step, but for one that is shown as a warning"
        if check.severity == "error"
        else "a failure is a warning and stops nothing"
    )
    yield f"{check.id}: {check.question}"
    yield f"  {stops}"
    yield from words(symptom=check.symptom, cause=check.cause, fix=check.fix)
    for fix in dict.fromkeys(check.fixes.values()):
        yield from words(
            **{f"fix of {', '.join(code for code, of_code in check.fixes.items() if of_code == fix)}": fix}
        )
    yield from record(check.id, "checks")
    yield f"  more: {check.page}"


def _step_check(check: StepCheck) -> Iterator[str]:
    yield f"{check.name}: {check.question}"
    yield f"  more: {check.page}"


def _monitor(monitor: MonitorWords) -> Iterator[str]:
    from trainworthy.lifecycle.gates.monitor_words import PAGE, causes_of

    yield f"{monitor.id}: {monitor.question}"
    yield f"  a monitor of a training; its alarm is at most {monitor.severity}"
    for symptom in (monitor.symptom, *monitor.also.values()):
        yield from words(symptom=symptom)
    yield from causes(causes_of(monitor.id))
    yield from record(monitor.id, "checks")
    yield f"  more: {PAGE}"


def _cause(name: str, cases: list[CauseWords]) -> Iterator[str]:
    yield f"{name}: a cause that alarms name"
    for cause in cases:
        yield from words(**({"case": cause.case} if cause.case else {}), cause=cause.cause, fix=cause.fix)
        yield from words(explains=", ".join(cause.explains))
    yield from record(name, "causes")
    yield "  more: docs/how-to/debugging.md"


def _taxon(taxon: Taxon) -> Iterator[str]:
    from trainworthy.lifecycle.gates.findings import LEAKS
    from trainworthy.lifecycle.protocol.leak import TAXONOMY

    yield f"{taxon}: a leak by the taxonomy of Kapoor and Narayanan (2023): {TAXONOMY[taxon]}"
    for leak in (leak for leak in LEAKS if leak.taxon == taxon):
        yield from words(**{"looked for by": f"{leak.id}: {leak.question}", "fix": leak.fix})
    yield "  more: docs/how-to/leakage.md"


def _leak(leak: LeakWords) -> Iterator[str]:
    from trainworthy.lifecycle.protocol.leak import TAXONOMY

    yield f"{leak.id}: {leak.question}"
    yield f"  looks for {leak.taxon}, {TAXONOMY[leak.taxon]}; in the details of leakage and leakage_in_training"
    yield from words(fix=leak.fix)
    yield "  more: docs/how-to/leakage.md"


def _rule(rule: RuleWords) -> Iterator[str]:
    yield f"{rule.id}: {rule.question}"
    yield "  a rule of the verdict; its codes say how it stands, as verdict/held_back_by has them"
    yield "  more: docs/how-to/evaluation.md#the-decision"


def _ruling(code: str, rule: RuleWords, state: StateWords) -> Iterator[str]:
    yield f"{code}: {rule.question}"
    yield from words(**{"how it stands": state.means})
    yield "  more: docs/how-to/evaluation.md#the-decision"


def _code(check: StageWords, code: str, fix: str) -> Iterator[str]:
    yield f"{code}: what {check.id} found; {check.question}"
    yield from words(fix=fix)
    yield f"  more: {check.page}"


def _code_words(code: CodeWords) -> Iterator[str]:
    yield f"{code.id}: a code of {code.of}"
    yield from words(means=code.means, **({"fix": code.fix} if code.fix else {}))
    page = f"docs/errors.md#{code.of.lower()}" if code.is_error else f"trainworthy explain {code.of}"
    yield f"  more: {_PAGES.get(code.of, page)}"


# Of what gives codes and is no check.
_PAGES = {"preflight": "docs/how-to/preflight.md", "diagnosis": "docs/how-to/diagnose.md"}


def _error(error: type[TrainworthyError]) -> Iterator[str]:
    from trainworthy.lifecycle.gates.codes import CODES

    yield f"{error.__name__}: a class of errors"
    yield from words(means=_meaning(error))
    if codes := [code.id for code in CODES if code.of == error.__name__]:
        yield from words(codes=", ".join(codes))
    yield f"  more: docs/errors.md#{error.__name__.lower()}"


def _meaning(error: type[TrainworthyError]) -> str:
    """The first paragraph of its docstring; what follows is for who raises it."""
    return " ".join((error.__doc__ or "").partition("\n\n")[0].split())


def _end(end: EndWords) -> Iterator[str]:
    yield f"{end.id}: how a training's process ended, {_exits(end)}"
    yield from words(means=end.means, follows=end.follows)
    yield "  more: docs/how-to/failures.md"


def _decision(decision: DecisionWords) -> Iterator[str]:
    yield f"{decision.id}: what a verdict decides"
    yield from words(means=decision.means, follows=decision.follows)
    yield "  more: docs/how-to/evaluation.md#the-decision"


def _term(term: Term) -> Iterator[str]:
    yield f"{term.id}: {term.kind}"
    yield from words(means=term.means)
    yield f"  more: {term.page}"


def _exits(end: EndWords) -> str:
    return "by a signal" if end.exit is None else f"exit code {end.exit}"


def _part(part: Part) -> Iterator[str]:
    from trainworthy.lifecycle.gates.diagnosis import fix_of_part, part_name

    yield f"{part}: a part of a training that a diagnosis exchanges: {part_name(part)}"
    yield from words(**{"fix, if its exchange recovers": fix_of_part(part)})
    yield "  more: docs/how-to/diagnose.md"


def _function(name: str) -> Iterator[str]:
    """A row of `trainworthy check`: what lifecycle/task.py says of it."""
    from trainworthy.lifecycle.task import REQUIRED_FUNCTIONS, Task

    if name == "forward":
        yield "forward: what build_model's network does, on the dict that to_tensors gives; a row of trainworthy check"
    elif name in REQUIRED_FUNCTIONS:
        function = getattr(Task, name)
        given = ", ".join(list(inspect.signature(function).parameters)[1:])
        yield f"{name}({given}): a function of model.py; a row of trainworthy check"
        yield from words(gives=" ".join(function.__doc__.split()))
    else:
        yield f"{name}: a function that model.py may define; then a row of trainworthy check"
    yield "  more: docs/how-to/use-case.md#modelpy"
