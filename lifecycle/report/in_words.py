"""What a step decided and why, in a few sentences: for Dagster's pages, which show one step at a time."""

from __future__ import annotations

import re

from trainworthy.lifecycle.protocol.checks import by_badness, stopping
from trainworthy.lifecycle.protocol.records import (
    DatasetVersion,
    EvaluationReport,
    PreflightReport,
    Record,
    Snapshot,
    Split,
    StageReport,
    Verdict,
)
from trainworthy.lifecycle.report.formatting import day, figure, interval, share, with_method
from trainworthy.lifecycle.report.outcome import avoided, check_sentence, in_brief, reading
from trainworthy.lifecycle.report.pictures import validation_loss
from trainworthy.lifecycle.tasks import words_of
from trainworthy.lifecycle.wording import count, metric_name, words

# Among a stage's figures of validation, after val_.
_LOSSES = ("loss", "loss_of_prior")
# Dagster shows Markdown below 1,000 characters in place, and behind a click from there on.
MAX_MARKDOWN = 870


def decision(record: Record) -> str:
    """promote, shadow or reject for a verdict; for every other record passed or stopped."""
    if not record.passed:
        return "stopped"
    return record.decision if isinstance(record, Verdict) else "passed"


def reasons(record: Record) -> tuple[str, ...]:
    """Why, in sentences; for a stopped step what its closed gate saw, and the fix."""
    if not record.passed:
        failed = by_badness(stopping(record.checks))
        sentences = tuple(f"{check_sentence(check)} Fix: {check.fix}".strip() for check in failed)
        return sentences + ((avoided(record),) if isinstance(record, StageReport) and record.avoided_usd else ())
    match record:
        case Verdict():
            return in_brief(record)
        case DatasetVersion():
            return _dataset(record)
        case Snapshot():
            return _snapshot(record)
        case PreflightReport():
            return _preflight(record)
        case StageReport():
            return _stage(record)
        case EvaluationReport():
            return _evaluation(record)
        case _:
            return ()


def markdown_list(sentences: tuple[str, ...]) -> str:
    """The sentences as a Markdown list that shows them as they are, as many as Dagster shows in place."""
    lines = [f"- {as_markdown(sentence)}" for sentence in sentences]
    while len(lines) > 1 and len("\n".join(lines)) > MAX_MARKDOWN:
        lines.pop()
    left = len(sentences) - len(lines)
    return "\n".join([*lines, *([f"- and {left} more: see the report"] if left else [])])


def as_markdown(text: str) -> str:
    """Text in one line in which nothing is markup or a link."""
    line = re.sub(r"([\\`*_\[\]<>#|~&!:@$])", r"\\\1", " ".join(text.split()))
    # A number or a sign at the start of an item would begin a list inside it, and www. a link.
    return re.sub(r"^(\d*)([-+.)=])", r"\1\\\2", line).replace("www.", r"www\.")


def _dataset(record: DatasetVersion) -> tuple[str, ...]:
    sentence = f"{record.name}@{record.revision}: {count(record.rows)} rows in {count(record.file_count)} files."
    return (sentence, f"Every row was read: the content hash is the published one, {record.content_hash[:12]}.")


def _snapshot(record: Snapshot) -> tuple[str, ...]:
    splits = sorted(record.splits.values(), key=lambda split: split.start)
    spans = [f"{words(s.name)} {_span(s)}{count(s.rows)} rows{f', {s.labels}' if s.labels else ''}" for s in splits]
    read = record.rows + record.excluded_rows
    left_out = f"{count(record.excluded_rows)} without a label are left out ({share(record.excluded_rows, read)})"
    checks = [check_sentence(check) for check in record.checks if check.name in ("contract", "availability", "leakage")]
    return (f"{count(record.rows)} labelled rows; {left_out}.", *checks, *spans)


def _span(split: Split) -> str:
    """First and last day of a split; nothing where its rows hold no times."""
    return f"{day(split.start)} to {day(split.end)}, " if split.start else ""


def _preflight(record: PreflightReport) -> tuple[str, ...]:
    named = (("Seconds", record.seconds), ("Cost", record.cost_usd), ("Memory", record.memory_bytes))
    forecasts = [f"{name}: {interval(forecast)}" for name, forecast in named if forecast is not None]
    tried = [check_sentence(check) for check in record.checks if not check.name.endswith("_forecast")]
    return (*[f"Forecast for the three stages. {forecast_text}." for forecast_text in forecasts], *tried)


def _stage(record: StageReport) -> tuple[str, ...]:
    loss, prior = validation_loss(record), record.metrics.get("val_loss_of_prior")
    losses = f"validation loss {figure(loss)}" if loss is not None else "no validation loss"
    named = words_of(record)
    prior_text = f", where always saying the {named.prior} gives {figure(prior)}" if prior is not None else ""
    begun = "Trained" if record.kind == "full" else "Go"
    sentence = f"{begun}: {losses}{prior_text}, after {count(record.steps)} steps on {count(record.rows)} rows."
    curve = (f"Data-learning curve: {record.data_curve.told}.",) if record.data_curve else ()
    shown = ("learned", "references", "seeds", "remaining_cost")
    checks = (check for check in record.checks if check.name in shown and check.status != "not_applicable")
    return (sentence, *map(check_sentence, checks), *curve)


def validated(record: StageReport) -> str:
    """A trained stage's loss on the validation split beside that of the constant answer, and its score, in one line."""
    loss, prior = validation_loss(record), record.metrics.get("val_loss_of_prior")
    if loss is None:
        return "validation: not measured"
    others = {name.removeprefix("val_"): value for name, value in record.metrics.items() if name.startswith("val_")}
    scores = [f"{metric_name(name)} {figure(value)}" for name, value in others.items() if name not in _LOSSES]
    better = ", which is better" if prior is not None and loss > prior else ""
    prior_text = "" if prior is None else f" (always saying the {words_of(record).prior}: {figure(prior)}{better})"
    return f"validation: {', '.join([f'loss {figure(loss)}{prior_text}', *scores])}"


def _evaluation(record: EvaluationReport) -> tuple[str, ...]:
    sentence = (
        f"Measured on {count(record.rows)} rows in {count(record.groups)} groups, scored from the exported artifact."
    )
    named = words_of(record)
    gains = [
        f"Gain over {named.reference(item.reference)} in {metric_name(item.metric)}:"
        f" {with_method(item.gain, sign=True)}, {reading(item)}."
        for item in record.comparisons
    ]
    return (sentence, *gains)
