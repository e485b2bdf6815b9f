"""The first page's figures, its open checks and what the decision covers, derived from the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainworthy.lifecycle.gates.earlier import caps, open_checks
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.protocol.checks import CheckResult, badness, is_open
from trainworthy.lifecycle.protocol.figures import CANDIDATE, Comparison, Estimate, Metric
from trainworthy.lifecycle.protocol.records import (
    STAGES,
    DatasetVersion,
    EvaluationReport,
    Snapshot,
    Split,
    Step,
    Verdict,
)
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report.formatting import (
    HASH_PREFIX,
    capital,
    day,
    figure,
    limits,
    point,
    share,
    with_method,
)
from trainworthy.lifecycle.report.origins import commit_state
from trainworthy.lifecycle.report.outcome import Records, all_comparisons, reading, record_of, said, stages_of
from trainworthy.lifecycle.report.pictures import overall_metrics, validation_loss
from trainworthy.lifecycle.report.sections import ForecastRow, forecast_rows, status_words
from trainworthy.lifecycle.tasks import words_of
from trainworthy.lifecycle.wording import count, metric_name, words

A_DOLLAR = 1.0
# What fits on one printed page; the rest stands further below.
MAX_REASONS, MAX_CHANGES, MAX_CHECKS = 6, 4, 3


class Fact(NamedTuple):
    """A name, its value, and a remark in smaller print."""

    name: str
    value: str
    remark: str


def key_figures(records: Records, *, small: bool = False) -> list[Fact]:
    """Quality, the gain over champion and over the hardest baseline, and unless it is small the training's cost."""
    facts = quality(records) or _validation(records)
    facts += [_gain(item, said(records)) for item in _decisive(records)]
    return facts if small else facts + cost_figures(records)


def is_small(usd: float) -> bool:
    """Whether a cost is one that nobody decides by: it stands in a line beneath the figures, and not among them."""
    return usd < A_DOLLAR


def cost_figures(records: Records) -> list[Fact]:
    """The training's cost against its forecast; none where nothing was forecast."""
    return [_training_cost(row) for row in forecast_rows(records) if row.name == "cost"][:1]


def _training_cost(cost: ForecastRow) -> Fact:
    """What training cost, against its forecast; the forecast alone where that is not known."""
    forecast = cost.forecast.partition(" [")[0]
    if cost.actual == "–":
        return Fact("Cost of training, forecast", forecast, cost.reading)
    return Fact("Cost of training", cost.actual, f"forecast {forecast}: {cost.reading}")


def quality(records: Records) -> list[Fact]:
    """The primary metric on the benchmark, and beside it the one that people know, in a sentence; none unmeasured."""
    report = record_of(records, "evaluation", EvaluationReport)
    if report is None:
        return []
    first = [
        Fact(f"{capital(metric_name(report.primary))} on the benchmark", point(item.estimate), _interval(item.estimate))
        for item in overall_metrics(report)
    ]
    return first + _familiar(report)


def left_open(records: Records) -> list[Fact]:
    """Checks that failed or were inconclusive and stopped nothing, with what to do: failed ones first."""
    return [
        Fact(f"{words(step)}: {words(check.name)}", status_words(check.status).lower(), check.fix or check.evidence)
        for step, check in checks_not_passed(records)
        if not check.stops
    ]


def checks_not_passed(records: Records) -> list[tuple[Step, CheckResult]]:
    """Checks that failed or were inconclusive with their steps, the worst first; those of preflight one by one.

    The verdict's own are left out: they are the controls, which are told apart. What a later stage asked of more rows,
    and found as well, is told once; what preflight left open, and a stage answered, is not told.
    """
    by_step: dict[Step, Sequence[CheckResult]] = {
        step: record.checks for step, record in records.items() if not isinstance(record, Verdict)
    }
    still_open = open_checks(by_step, continued=True)

    def is_answered(step: Step, whole: CheckResult) -> bool:
        return step == "preflight" and caps(whole) and f"{step}/{whole.name}" not in still_open

    found: list[tuple[Step, CheckResult, bool]] = [
        (step, check, follows)
        for step, some in by_step.items()
        for whole in some
        for check, follows in _with_trials(whole)
        if is_open(check) and not (caps(check) and is_answered(step, whole))
    ]
    # What may follow from another failure comes after it, whichever family of checks the two are of.
    checks: list[tuple[Step, CheckResult]] = [
        (step, check) for step, check, _ in sorted(found, key=lambda item: (badness(item[1]), item[2]))
    ]
    newest = {check.name: step for step, check in checks if step in STAGES}
    told = (item for item in checks if item[0] not in STAGES or newest[item[1].name] == item[0])
    return sorted(told, key=lambda item: badness(item[1]))


def labelled(label: str, split: Split) -> str:
    """The label, and of an event how many rows have it: where it is rare they say how sure figures are."""
    events = "" if split.positives is None else f": {count(split.positives)} of {count(split.rows)} rows are 1"
    return f"label {label}{events}"


def bound(records: Records) -> list[Fact]:
    """What the outcome is about: dataset version, benchmark, model, champion before and after, commit."""
    facts = []
    if dataset := record_of(records, "dataset", DatasetVersion):
        remark = f"{count(dataset.rows)} rows, content {dataset.content_hash[:HASH_PREFIX]}"
        facts.append(Fact("Dataset", f"{dataset.name}@{dataset.revision}", remark))
    if snapshot := record_of(records, "snapshot", Snapshot):
        window, training = snapshot.splits.get("benchmark"), snapshot.splits.get("training")
        later = window is not None and training is not None and training.end < window.start
        used = record_of(records, "evaluation", EvaluationReport) is not None
        if window is not None:
            held_out = f"{count(window.rows)} rows in {count(window.groups)} groups"
            rows = f"{day(window.start)} to {day(window.end)}" if later else held_out
            facts.append(Fact("Benchmark", rows, labelled(snapshot.label, window) if used else "untouched"))
    if verdict := record_of(records, "promotion", Verdict):
        facts += [Fact("Model", verdict.model_name, f"version {verdict.model_version}"), _champion(verdict)]
    if records:
        origin = list(records.values())[-1].provenance
        facts.append(Fact("Commit", (origin.git_commit or "none")[:HASH_PREFIX], commit_state(origin)))
    return facts


def _champion(verdict: Verdict) -> Fact:
    before = f"version {verdict.champion}" if verdict.champion else "none"
    after = f"version {verdict.model_version}" if verdict.decision == "promote" else before
    return Fact("Champion after this run", after, "as before" if after == before else f"before: {before}")


def _with_trials(check: CheckResult) -> Iterator[tuple[CheckResult, bool]]:
    """The check, or in place of a family of preflight its trials; and whether it may follow from another failure."""
    trials = trials_of([check])
    for trial in trials:
        found = CheckResult(
            name=trial.check, status=trial.status, severity=trial.severity, required=trial.required,
            evidence=trial.evidence, fix=trial.fix,
        )  # fmt: skip
        yield found, bool(trial.follows)
    if not trials:
        yield check, False


def _familiar(report: EvaluationReport) -> list[Fact]:
    """The best known metric of the kind of task that was measured and is not the primary one."""
    overall: dict[str, Metric] = {
        item.metric: item for item in report.metrics if item.model == CANDIDATE and item.slice is None
    }
    known = [(name, meaning) for name, meaning in words_of(report).familiar if name != report.primary]
    for name, meaning in known:
        if name in overall:
            value = overall[name].estimate
            explanation = meaning.format(value=point(value), share=share(value.value))
            return [Fact(capital(metric_name(name)), point(value), f"{_interval(value)}: {explanation}")]
    return []


def _interval(value: Estimate) -> str:
    return f"95 % {limits(value)}{value.method_told}"


def _validation(records: Records) -> list[Fact]:
    stage = next(iter(reversed(stages_of(records))), None)
    loss = validation_loss(stage) if stage else None
    if stage is None or loss is None:
        return []
    prior = stage.metrics.get("val_loss_of_prior")
    prior_text = f"; {words_of(stage).prior} {figure(prior)}" if prior else ""
    return [Fact("Loss on the validation split", figure(loss), f"{stage.kind}, {count(stage.rows)} rows{prior_text}")]


def _decisive(records: Records) -> list[Comparison]:
    """The champion and the hardest baseline, on the primary metric."""
    report = record_of(records, "evaluation", EvaluationReport)
    primary = [item for item in all_comparisons(records) if report and item.metric == report.primary]
    champion = [item for item in primary if item.reference == "champion"]
    baselines = [item for item in primary if item.reference != "champion"]
    return [*champion, *sorted(baselines, key=lambda item: item.gain.low)[:1]]


def _gain(item: Comparison, named: Words) -> Fact:
    value, _, interval = with_method(item.gain, sign=True).partition(" ")
    return Fact(f"Gain over {named.reference(item.reference)}", value, f"95 % {interval}, {reading(item)}")
