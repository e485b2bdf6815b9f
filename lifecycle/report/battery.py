"""Preflight's trials as the report lists them: a family after the other, what did not pass with its words."""

from __future__ import annotations

from dataclasses import dataclass

from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.report.outcome import Records
from trainworthy.lifecycle.report.sections import check_note, check_summary


@dataclass(frozen=True)
class Family:
    """A family's trials; `summary` says how they ended."""

    name: str
    trials: tuple[Trial, ...]
    summary: str


def families(records: Records) -> list[Family]:
    """The families that have trials, in the order of the gate."""
    record = records.get("preflight")
    by_check = [(check.name, trials_of([check])) for check in record.checks] if record is not None else []
    return [Family(name, trials, _summary(trials)) for name, trials in by_check if trials]


def has_trials(check: CheckResult) -> bool:
    """True for a check whose details are told here, and need no table of their own."""
    return bool(trials_of([check]))


def standing(records: Records) -> str:
    """All trials in a sentence: how many, in how many seconds, with how many updates, and how they ended."""
    trials = [trial for family in families(records) for trial in family.trials]
    seconds, updates = sum(trial.seconds for trial in trials), sum(trial.optimizer_steps for trial in trials)
    made = f"{updates:,} optimizer {'update' if updates == 1 else 'updates'}"
    return f"{len(trials)} checks in {seconds:.1f} s, with {made}: {_summary(trials)}."


def words_of(trial: Trial) -> tuple[tuple[str, str], ...]:
    """Symptom, cause and fix of a trial that did not pass, each if there is one."""
    if trial.status in ("pass", "not_applicable"):
        return ()
    named = (("Symptom", trial.symptom), ("Likely cause", trial.cause), ("Fix", trial.fix))
    return tuple((name, text) for name, text in named if text)


def note(trial: Trial) -> str:
    """What the status means for the run, in the words of the checks' table."""
    return check_note(
        CheckResult(name=trial.check, status=trial.status, severity=trial.severity, required=trial.required)
    )


def _summary(trials: tuple[Trial, ...] | list[Trial]) -> str:
    return check_summary(trials)
