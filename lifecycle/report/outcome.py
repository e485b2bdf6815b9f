"""The first screen of the report: what was decided, why, what it cost and what would change it.

Every sentence is derived from the records; where they do not tell, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from trainworthy.lifecycle.gates.own_trainer import FAMILY as TRAINER
from trainworthy.lifecycle.protocol.checks import CheckResult, by_badness, stopping
from trainworthy.lifecycle.protocol.figures import Comparison, ModelFigures
from trainworthy.lifecycle.protocol.records import (
    ALONE,
    STAGES,
    STEPS,
    Cost,
    EvaluationReport,
    PreflightReport,
    Record,
    StageReport,
    Step,
    StoppedStep,
    Verdict,
)
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report.formatting import capital, estimate, interval, limits, plain, sentence_case, usd
from trainworthy.lifecycle.tasks import words_of
from trainworthy.lifecycle.tasks.interval import groups_to_show, rows_and_room
from trainworthy.lifecycle.wording import about, count, metric_name

Records = Mapping[Step, Record]
Kind = TypeVar("Kind", bound=Record)
Tone = Literal["good", "hold", "bad", "neutral"]

CONTROLS = ("dataset", "benchmark", "cost", "reproducibility", "deployment")
_TONES: dict[str, Tone] = {"promote": "good", "shadow": "hold", "reject": "bad"}


@dataclass(frozen=True)
class RunOutcome:
    """`label` is the badge, `mark` repeats its tone in a shape; the others are sentences.

    `why` is the reason that decided, `reasons` are the others for the first page.
    """

    label: str
    tone: Tone
    summary: str
    why: str
    reasons: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def mark(self) -> str:
        return {"good": "✓", "hold": "◐", "bad": "✕", "neutral": "○"}[self.tone]


def outcome(records: Records, stopped_at: Step | None) -> RunOutcome:
    """The outcome of a run: stopped, judged, or ended without a verdict."""
    stopped = stopped_step(records, stopped_at)
    verdict = record_of(records, "promotion", Verdict)
    if stopped is not None:
        return _stopped(stopped, records.get(stopped))
    return _judged(records, verdict) if verdict else _not_judged(records)


def stopped_step(records: Records, stopped_at: Step | None) -> Step | None:
    """Where the run stopped: as told, else the first step whose gate is closed; a refusal to ship is no stop."""
    return stopped_at or next((step for step in STEPS if step in records and not _may_go_on(records[step])), None)


def costs_of_run(records: Records, run_id: str | None = None) -> dict[Step, Cost]:
    """What each present step cost the run (without an id, the newest record's): 0 for a step that another run made."""
    present: list[Step] = [step for step in STEPS if step in records]
    if run_id is None:
        run_id = records[present[-1]].provenance.run_id if present else ""
    return {step: _cost_if_made_by(records[step], run_id) for step in present}


def total_cost(records: Records) -> Cost:
    """What the model cost with its judging, whichever run paid for a step: Verdict.total_cost, of any records."""
    return sum((record.cost for record in records.values()), Cost())


def bought(records: Records, stopped: Step | None) -> str:
    """What the run did, and for a stopped run what the stop spared."""
    stages = stages_of(records)
    parts = []
    if stages:
        last = stages[-1]
        noun = "stage" if len(stages) == 1 else "stages"
        parts.append(
            f"{len(stages)} {noun} of training, the last with {count(last.steps)} steps on {count(last.rows)} rows"
        )
    report = record_of(records, "evaluation", EvaluationReport)
    if report:
        references = len({item.reference for item in report.comparisons})
        parts.append(
            f"a score on {count(report.rows)} benchmark rows in {count(report.groups)} groups"
            f" beside {references} reference models"
        )
    text = " and ".join(parts) or "checks only: nothing was trained"
    return f"{text}. {_spared(records)}".strip() if stopped else f"{text}."


def check_sentence(check: CheckResult) -> str:
    """A check's finding as one sentence."""
    evidence = f": {check.evidence.rstrip('.')}" if check.evidence else ""
    if check.observed is None:
        return f"{sentence_case(check.name)}{evidence}."
    limit = "" if check.threshold is None else f", threshold {plain(check.threshold)}"
    return f"{sentence_case(check.name)}{evidence} (observed {plain(check.observed)}{limit})."


# Whoever does not reach these has a training to look at; boosted trees may just be the better model.
SIMPLE = ("prior", "linear")


def all_comparisons(records: Records) -> tuple[Comparison, ...]:
    """The evaluation's comparisons and those that only the verdict made; the champion comes first."""
    report, verdict = record_of(records, "evaluation", EvaluationReport), record_of(records, "promotion", Verdict)
    first = report.comparisons if report else ()
    known = {(item.reference, item.metric) for item in first}
    more = [item for item in (verdict.comparisons if verdict else ()) if (item.reference, item.metric) not in known]
    return tuple(sorted((*first, *more), key=lambda item: item.reference != "champion"))


def of_champion(records: Records) -> ModelFigures | None:
    """What the champion measures on the candidate's rows, where one was met."""
    verdict = record_of(records, "promotion", Verdict)
    return verdict.champion_figures if verdict else None


def reading(comparison: Comparison) -> str:
    """The interval in a word."""
    gain = comparison.gain
    return "better" if gain.shows_gain else "worse" if gain.shows_loss else "no difference shown"


def said(records: Records) -> Words:
    """What the run's kind of task calls its references."""
    return words_of(next(iter(records.values()))) if records else Words()


def stages_of(records: Records) -> list[StageReport]:
    """The training stages that are present, in order."""
    return [record for step in STAGES if (record := record_of(records, step, StageReport))]


def record_of(records: Records, step: Step, kind: type[Kind]) -> Kind | None:
    """The step's record if it is of its own kind: None if absent, or if the step ended without a result."""
    record = records.get(step)
    return record if isinstance(record, kind) else None


def _may_go_on(record: Record) -> bool:
    return record.passed or (isinstance(record, Verdict) and record.decision != "promote")


def _cost_if_made_by(record: Record, run_id: str) -> Cost:
    return record.cost if record.provenance.run_id == run_id else Cost()


def _stopped(step: Step, record: Record | None) -> RunOutcome:
    failed = by_badness(stopping(record.checks) if record else ())
    reasons = [check_sentence(check) for check in failed if check.name != "completed"]
    if isinstance(record, StoppedStep) and not reasons:
        reasons = [record.error.strip()]
    first, *rest = reasons or [f"{sentence_case(step)} ended without a failed check: see the log of the run."]
    return RunOutcome(
        label=f"Stopped at {step}",
        tone="bad",
        summary="The run ended at a closed gate; nothing was shipped." if failed else "Nothing was shipped.",
        why=first,
        reasons=tuple(rest),
        changes=tuple(_fix_of(check) for check in failed if check.fix)
        or (f"Fix the cause at {step}, then run again; finished steps are reused.",),
    )


def _fix_of(check: CheckResult) -> str:
    return capital(check.fix) if check.name == "completed" else f"{sentence_case(check.name)}: {check.fix}"


def _judged(records: Records, verdict: Verdict) -> RunOutcome:
    first, *rest = in_brief(verdict) or ("The verdict gives no reason.",)
    return RunOutcome(
        label=", ".join(filter(None, [verdict.decision.capitalize(), verdict.headline])),
        tone=_TONES[verdict.decision],
        summary=_what_follows(verdict),
        why=first,
        reasons=tuple(rest),
        changes=_changes(records, verdict),
    )


def _what_follows(verdict: Verdict) -> str:
    """What the decision means for what is live."""
    promoted = verdict.decision == "promote"
    if verdict.champion == verdict.model_version:
        return "The model stays the champion" + ("." if promoted else "; this evidence would not promote it.")
    if promoted:
        return "The model becomes the champion."
    if verdict.decision == "reject":
        return "The model is not shipped." + ("" if verdict.champion else " There is still no champion.")
    if verdict.champion is None:
        return "There is still no champion; the evidence does not suffice to make this model the first."
    return "The model may run beside the champion; the evidence does not suffice to replace it."


def in_brief(verdict: Verdict) -> tuple[str, ...]:
    """The reasons, with one sentence for the five controls if all passed; of a verdict without codes all of them.

    Of a first model what was shown of it stands before that it was declared so.
    """
    passed = {f"control.{name}.pass" for name in CONTROLS}
    if len(verdict.codes) != len(verdict.reasons):
        return verdict.reasons
    told = list(zip(verdict.codes, verdict.reasons, strict=True))
    if verdict.decision == "promote":
        told.sort(key=lambda code_and_reason: code_and_reason[0] == "champion.first")
    if not passed <= set(verdict.codes):
        return tuple(reason for _, reason in told)
    return (*(reason for code, reason in told if code not in passed), "All five controls passed.")


def _not_judged(records: Records) -> RunOutcome:
    last = next((step for step in reversed(STEPS) if step in records), None)
    changes = "Run the train job: it scores the model on the benchmark and judges it."
    if last == "full":
        summary = "An experiment ends at the validation split; the benchmark is untouched."
        return RunOutcome("Experiment: not judged", "neutral", summary, "All three stages passed.", (), (changes,))
    summary = f"The run ended after {last}, and every gate up to there passed." if last else "There are no records."
    return RunOutcome("Not judged", "neutral", summary, "No verdict was asked for.", (), (changes,))


def _changes(records: Records, verdict: Verdict) -> tuple[str, ...]:
    """What more rows would show of what held the model back; for a promotion, its narrowest evidence."""
    if verdict.decision == "promote":
        comparisons, named = all_comparisons(records), said(records)
        clear = [item for item in comparisons if reading(item) == "better"]
        narrow = [_narrowest(min(clear, key=lambda item: item.gain.low), named)] if clear else []
        unsettled = [item for item in comparisons if reading(item) == "no difference shown"]
        return tuple(narrow + [_more_groups(item, named) for item in unsettled])
    # A verdict from before held_back_by has only its reasons, the one that decided first.
    lacking = map(_lacks, verdict.reasons, verdict.held_back_by) if verdict.held_back_by else verdict.reasons[:1]
    part = diagnosis_of_part(records, verdict)
    return tuple(dict.fromkeys(filter(None, (*lacking, part and f"{part[0].upper()}{part[1:]}."))))


def diagnosis_of_part(records: Records, verdict: Verdict) -> str:
    """How to find the part of the training that keeps a model behind a simple baseline; empty where that is no matter.

    Parts of a training script cannot be exchanged from outside.
    """
    preflight = record_of(records, "preflight", PreflightReport)
    by_script = preflight is not None and any(check.name == TRAINER for check in preflight.checks)
    behind = any(code.partition(".")[0] in SIMPLE for code in verdict.held_back_codes)
    command = f"trainworthy diagnose {verdict.provenance.run_id}"
    return f"which part of the training keeps the model back: {command}" if behind and not by_script else ""


def _lacks(reason: str, held_back_by: str) -> str:
    """What would change a reason, after what it is about; empty where the reason itself says all there is."""
    whole = reason.removesuffix(".")
    lacking = held_back_by.removeprefix(whole).removesuffix(f"; {ALONE}.").lstrip("; ")
    return "" if lacking in ("", ".") else f"{whole.partition(':')[0]}: {lacking}"


def _narrowest(item: Comparison, named: Words) -> str:
    return (
        f"The weakest proof is the gain over {named.reference(item.reference)} in {metric_name(item.metric)},"
        f" {estimate(item.gain, sign=True)}: if newer data lowered it by {limits(item.gain)[1:].split(',')[0]},"
        " it would no longer count as proven."
    )


def _more_groups(item: Comparison, named: Words) -> str:
    subject = f"The gain over {named.reference(item.reference)} in {metric_name(item.metric)}"
    text = f"{subject}, {estimate(item.gain, sign=True)}, is not clearly different from 0"
    if (needed := groups_to_show(*rows_and_room(item, item.gain.value))) is None:
        return f"{text}; a better model is needed, not more benchmark rows."
    return f"{text} with {count(item.gain.groups)} groups; if it holds, {about(needed)} groups would show it."


def avoided(stage: StageReport) -> str:
    """What a stop at the stage spared, as it was forecast; empty if it did not stop or nothing was forecast."""
    return f"The stop avoided {interval(stage.avoided_usd)} of further training." if stage.avoided_usd else ""


def _spared(records: Records) -> str:
    avoided_texts = [avoided(stage) for stage in stages_of(records) if stage.avoided_usd]
    if avoided_texts:
        return avoided_texts[-1]
    preflight = record_of(records, "preflight", PreflightReport)
    forecast = preflight.cost_usd if preflight else None
    if forecast is None:
        return ""
    rest = forecast.value - sum(stage.cost.usd for stage in stages_of(records))
    return f"Of the {usd(forecast.value)} forecast for training, {usd(rest)} were not spent." if rest > 0 else ""
