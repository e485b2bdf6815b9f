"""What `trainworthy explain` tells of each kind of thing that has an id, as lines."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainworthy.pipeline.explain_words import causes, record, words

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


def row(words: CheckWords | StageWords | MonitorWords) -> str:
    return f"{words.id:<40} {words.question}"


def of_check(check: CheckWords) -> Iterator[str]:
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


def of_stage_check(check: StageWords) -> Iterator[str]:
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


def of_step_check(check: StepCheck) -> Iterator[str]:
    yield f"{check.name}: {check.question}"
    yield f"  more: {check.page}"


def of_monitor(monitor: MonitorWords) -> Iterator[str]:
    from trainworthy.lifecycle.gates.monitor_words import PAGE, causes_of

    yield f"{monitor.id}: {monitor.question}"
    yield f"  a monitor of a training; its alarm is at most {monitor.severity}"
    for symptom in (monitor.symptom, *monitor.also.values()):
        yield from words(symptom=symptom)
    yield from causes(causes_of(monitor.id))
    yield from record(monitor.id, "checks")
    yield f"  more: {PAGE}"


def of_cause(name: str, cases: list[CauseWords]) -> Iterator[str]:
    yield f"{name}: a cause that alarms name"
    for cause in cases:
        yield from words(**({"case": cause.case} if cause.case else {}), cause=cause.cause, fix=cause.fix)
        yield from words(explains=", ".join(cause.explains))
    yield from record(name, "causes")
    yield "  more: docs/how-to/debugging.md"


def of_taxon(taxon: Taxon) -> Iterator[str]:
    from trainworthy.lifecycle.gates.findings import LEAKS
    from trainworthy.lifecycle.protocol.leak import TAXONOMY

    yield f"{taxon}: a leak by the taxonomy of Kapoor and Narayanan (2023): {TAXONOMY[taxon]}"
    for leak in (leak for leak in LEAKS if leak.taxon == taxon):
        yield from words(**{"looked for by": f"{leak.id}: {leak.question}", "fix": leak.fix})
    yield "  more: docs/how-to/leakage.md"


def of_leak(leak: LeakWords) -> Iterator[str]:
    from trainworthy.lifecycle.protocol.leak import TAXONOMY

    yield f"{leak.id}: {leak.question}"
    yield f"  looks for {leak.taxon}, {TAXONOMY[leak.taxon]}; in the details of leakage and leakage_in_training"
    yield from words(fix=leak.fix)
    yield "  more: docs/how-to/leakage.md"


def of_rule(rule: RuleWords) -> Iterator[str]:
    yield f"{rule.id}: {rule.question}"
    yield "  a rule of the verdict; its codes say how it stands, as verdict/held_back_by has them"
    yield "  more: docs/how-to/evaluation.md#the-decision"


def of_ruling(code: str, rule: RuleWords, state: StateWords) -> Iterator[str]:
    yield f"{code}: {rule.question}"
    yield from words(**{"how it stands": state.means})
    yield "  more: docs/how-to/evaluation.md#the-decision"


def of_stage_code(check: StageWords, code: str, fix: str) -> Iterator[str]:
    yield f"{code}: what {check.id} found; {check.question}"
    yield from words(fix=fix)
    yield f"  more: {check.page}"


def of_code(code: CodeWords) -> Iterator[str]:
    yield f"{code.id}: a code of {code.of}"
    yield from words(means=code.means, **({"fix": code.fix} if code.fix else {}))
    page = f"docs/errors.md#{code.of.lower()}" if code.is_error else f"trainworthy explain {code.of}"
    yield f"  more: {_PAGES.get(code.of, page)}"


# Of what gives codes and is no check.
_PAGES = {"preflight": "docs/how-to/preflight.md", "diagnosis": "docs/how-to/diagnose.md"}


def of_error(error: type[TrainworthyError]) -> Iterator[str]:
    from trainworthy.lifecycle.gates.codes import CODES

    yield f"{error.__name__}: a class of errors"
    yield from words(means=meaning(error))
    if codes := [code.id for code in CODES if code.of == error.__name__]:
        yield from words(codes=", ".join(codes))
    yield f"  more: docs/errors.md#{error.__name__.lower()}"


def meaning(error: type[TrainworthyError]) -> str:
    """The first paragraph of its docstring; what follows is for who raises it."""
    return " ".join((error.__doc__ or "").partition("\n\n")[0].split())


def of_end(end: EndWords) -> Iterator[str]:
    yield f"{end.id}: how a training's process ended, {exits(end)}"
    yield from words(means=end.means, follows=end.follows)
    yield "  more: docs/how-to/failures.md"


def of_decision(decision: DecisionWords) -> Iterator[str]:
    yield f"{decision.id}: what a verdict decides"
    yield from words(means=decision.means, follows=decision.follows)
    yield "  more: docs/how-to/evaluation.md#the-decision"


def of_term(term: Term) -> Iterator[str]:
    yield f"{term.id}: {term.kind}"
    yield from words(means=term.means)
    yield f"  more: {term.page}"


def exits(end: EndWords) -> str:
    return "by a signal" if end.exit is None else f"exit code {end.exit}"


def of_part(part: Part) -> Iterator[str]:
    from trainworthy.lifecycle.gates.diagnosis import fix_of_part, part_name

    yield f"{part}: a part of a training that a diagnosis exchanges: {part_name(part)}"
    yield from words(**{"fix, if its exchange recovers": fix_of_part(part)})
    yield "  more: docs/how-to/diagnose.md"


def of_function(name: str) -> Iterator[str]:
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
