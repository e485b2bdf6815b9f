"""The rows of the report's tables, derived from the records; the template only lays them out.

Preflight's trials too, a family after the other; and the seeds and the data-learning curve, with what came of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainworthy.lifecycle.cost.forecast_error import Reckoning, reached_by_full, reckonings
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.protocol.checks import CheckResult, Status, by_badness
from trainworthy.lifecycle.protocol.figures import CANDIDATE, CHAMPION, Comparison, Estimate, Metric, ModelFigures
from trainworthy.lifecycle.protocol.records import (
    STAGES,
    STEPS,
    EvaluationReport,
    PreflightReport,
    Record,
    Split,
    StageReport,
    Step,
    Verdict,
)
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report.formatting import (
    estimate,
    figure,
    interval,
    plain,
    quantity,
    seconds,
    sentence_case,
    share,
    size,
)
from trainworthy.lifecycle.report.outcome import CONTROLS, Records, of_champion, reading, record_of, stages_of
from trainworthy.lifecycle.report.pictures import met_there, overall_of_slices, slice_metric, slice_metrics, worst_first
from trainworthy.lifecycle.tasks import is_better_higher
from trainworthy.lifecycle.wording import metric_name, stage_metric_name, words

# A table of more rows than this is read in the record, not in a report.
MAX_ROWS = 200
MAX_DETAILS = 20
# A table of more columns than this is wider than a sheet of A4: its rows are shown as lists.
MAX_COLUMNS = 8
_PLACES = {CANDIDATE: 0, CHAMPION: 1}
_LAST = {"insufficient": 1, "pass": 2, "not_applicable": 2}
_FIRST_KEYS = ("rule", "slice", "column", "part", "status", "result", "observed", "threshold", "loss", "gain")


@dataclass(frozen=True)
class ControlRow:
    name: str
    status: Status | Literal["not_judged"]
    reason: str


@dataclass(frozen=True)
class ForecastRow:
    """Forecast and actual value as text; `reading` compares the actual value with the interval."""

    name: str
    forecast: str
    actual: str
    reading: str


def control_rows(records: Records) -> list[ControlRow]:
    """The five controls in their order, then the verdict's other ones; unmeasured is said, not left out."""
    verdict = record_of(records, "promotion", Verdict)
    given = {item.name: item for item in verdict.controls} if verdict else {}
    missing: tuple[Status | Literal["not_judged"], str] = (
        ("insufficient", "The verdict does not state this control.")
        if verdict
        else ("not_judged", "The run has no verdict.")
    )
    five = [
        ControlRow(name, given[name].status, given[name].reason) if name in given else ControlRow(name, *missing)
        for name in CONTROLS
    ]
    rest = [ControlRow(item.name, item.status, item.reason) for name, item in given.items() if name not in CONTROLS]
    return five + rest


def metric_table(
    records: Records, report: EvaluationReport
) -> tuple[list[str], list[tuple[str, list[Estimate | None]]]]:
    """Metrics over all rows: their names, the primary one first, then a row a model: candidate, champion, baselines."""
    champion = of_champion(records)
    measured = (*report.metrics, *(champion.metrics if champion else ()))
    cells = {(item.model, item.metric): item.estimate for item in measured if item.slice is None}
    metrics = sorted(dict.fromkeys(metric for _, metric in cells), key=lambda metric: metric != report.primary)
    models = sorted(dict.fromkeys(model for model, _ in cells), key=lambda model: _PLACES.get(model, 2))
    return metrics, [(model, [cells.get((model, name)) for name in metrics]) for model in models]


def cell_of_champion(item: Metric, champion: ModelFigures) -> str:
    """What the champion measures of the same metric on the same slice."""
    return next((estimate(measured) for measured in met_there(item, champion)), "not measured")


def earlier_rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """Version, day of its promotion, the metric then and now."""
    return [
        (
            f"version {earlier.version}",
            earlier.promoted[:10],
            estimate(earlier.then) if earlier.then else "not measured",
            estimate(earlier.now) if earlier.now else earlier.reason,
        )
        for earlier in verdict.earlier_champions
    ]


def direction(metric: str) -> str:
    """Which way is better, where it is known; of a quantile's coverage its own level is best."""
    if metric.startswith("coverage["):
        return f"best at {metric.removeprefix('coverage[').removesuffix(']')}"
    return {True: "higher is better", False: "lower is better", None: ""}[is_better_higher(metric)]


def note_of_metric(metric: str, report: EvaluationReport) -> str:
    """Its direction; of a calibration error also that bounds are held against the debiased one, where there is one."""
    debiased = metric == "calibration_error" and any(calibration.error for calibration in report.calibration)
    return direction(metric) + ("; chance adds to it: a bound is held against the debiased error" if debiased else "")


def slices_shown(report: EvaluationReport) -> tuple[Metric, ...]:
    """Slices of the candidate by the metric that slices are told by, worst first."""
    return worst_first(slice_metrics(report))[:MAX_ROWS]


def slices_in_words(report: EvaluationReport) -> str:
    """How many slices are clearly worse than all rows, and which is the worst of them."""
    slices, overall, higher = slice_metrics(report), overall_of_slices(report), is_better_higher(slice_metric(report))
    worse = [item for item in worst_first(slices) for whole in overall if _is_worse(item, whole, bool(higher))]
    if not worse:
        return f"None of {len(slices)} slices is shown to be worse than all rows."
    names = ", ".join(f"{item.slice} ({estimate(item.estimate)})" for item in worse[:3])
    metric, side = metric_name(slice_metric(report)), "below" if higher else "above"
    return (
        f"{len(worse)} of {len(slices)} slices lie {side} all rows in {metric} with their whole interval, worst first:"
        f" {names}. What there is to predict differs between slices, so a worse figure alone is no fault of the model."
    )


def _is_worse(item: Metric, whole: Metric, higher_is_better: bool) -> bool:
    """True if the slice's whole interval lies on the worse side of all rows."""
    if higher_is_better:
        return item.estimate.high < whole.estimate.value
    return item.estimate.low > whole.estimate.value


def standing(comparisons: Iterable[Comparison], named: Words) -> str:
    """All comparisons in a sentence: what the candidate is better than, and what not."""
    groups: dict[str, list[str]] = {}
    for item in comparisons:
        groups.setdefault(reading(item), []).append(f"{named.reference(item.reference)} ({metric_name(item.metric)})")
    before = {"better": "better than ", "worse": "worse than ", "no difference shown": "not measurably different from "}
    standings = [before[word] + ", ".join(groups[word]) for word in before if word in groups]
    return f"{sentence_case('; '.join(standings))}." if standings else ""


def slices_left_out(report: EvaluationReport) -> list[dict[str, Any]]:
    """The slices that were too small to measure, as the checks name them in their details."""
    return [row for check in report.checks for row in check.details if "slice" in row]


def forecast_rows(records: Records) -> list[ForecastRow]:
    """Forecasts against what the training stages used; a forecast of the whole run needs all three."""
    report = record_of(records, "preflight", PreflightReport)
    if report is None:
        return []
    stages = stages_of(records)
    why_not = "not recorded" if len(stages) == len(STAGES) else "training did not finish"
    return [_against(reckoning, why_not) for reckoning in reckonings(report, stages)]


def stage_metric(name: str, value: float) -> str:
    """A stage's metric by its name and value; bytes as a size."""
    amount = size(value) if name.endswith("_bytes") else plain(value)
    return f"{stage_metric_name(name.removesuffix('_bytes'))} {amount}"


def labels_of(split: Split) -> str:
    """What labels a split holds: of an event its share."""
    return split.labels if split.positives is None else share(split.positives, split.rows)


def goodput(stage: StageReport) -> str:
    """The share of the worker's time that moved the weights, and what took the rest, largest first."""
    if stage.seconds is None:
        return "not measured"
    wall = stage.seconds.wall
    rest = sorted(((value, name) for name, value in stage.seconds.by_part.items() if name != "compute"), reverse=True)
    parts = [f"{name} {value / wall:.0%}" for value, name in rest if wall and value / wall >= 0.005]
    again = f"; {stage.seconds.replayed_steps:,} steps done again" if stage.seconds.replayed_steps else ""
    breakdown = f" ({', '.join(parts)}{again})" if parts else ""
    return f"{stage.seconds.goodput:.0%} of {seconds(wall)}{breakdown}"


def check_summary(checks: Iterable[CheckResult | Trial]) -> str:
    """How many checks ended how, in words, the worst first."""
    counts: dict[str, int] = {}
    for check in by_badness(checks):
        counts[status_words(check.status)] = counts.get(status_words(check.status), 0) + 1
    return ", ".join(f"{number} {status.lower()}" for status, number in counts.items()) or "no checks"


def status_words(status: str) -> str:
    """A status as a reader's word."""
    return {"fail": "Failed", "pass": "Passed", "insufficient": "Inconclusive"}.get(status, words(status).capitalize())


def check_note(check: CheckResult) -> str:
    """What the status means for the run, where the status alone does not say it."""
    if check.stops:
        return "stops the run"
    if check.status in ("fail", "error"):
        return check.severity
    if check.status == "insufficient":
        return "caps the verdict at shadow" if check.severity == "error" else check.severity
    return ""


def failing_first(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A check's rows: failed ones, inconclusive ones, those that passed; rows without a status stand with the first."""
    return sorted(rows, key=lambda row: _LAST.get(str(row.get("status")), 0))


def keys_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys with a value in a check's rows: what a row is about, what was found, then in the order of first use."""
    keys = list(dict.fromkeys(key for row in rows for key in values_of(row)))
    return [*(key for key in _FIRST_KEYS if key in keys), *(key for key in keys if key not in _FIRST_KEYS)]


def values_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a check's row holds; keys without a value are left out."""
    return {key: value for key, value in row.items() if value is not None and value not in ("", (), [], {})}


def not_reached(records: Records) -> list[Step]:
    """The steps without a record."""
    return [step for step in STEPS if step not in records]


def evidence_rows(verdict: Verdict) -> list[tuple[str, Any]]:
    """The verdict's evidence, one level flat."""
    rows: list[tuple[str, Any]] = []
    for name, value in verdict.evidence.items():
        rows += (
            [(f"{name}: {key}", item) for key, item in value.items()] if isinstance(value, dict) else [(name, value)]
        )
    return rows


def ordered(records: Records) -> dict[Step, Record]:
    """The records in the order of the steps."""
    return {step: records[step] for step in STEPS if step in records}


def _against(reckoning: Reckoning, why_not: str) -> ForecastRow:
    forecast, actual = reckoning.forecast, reckoning.actual
    if forecast is None:
        return ForecastRow(reckoning.name, "could not be forecast", "–", "see the checks of preflight")
    if actual is None:
        return ForecastRow(reckoning.name, interval(forecast), "–", reckoning.why_not or why_not)
    side = "inside" if reckoning.inside else "above" if actual > forecast.high else "below"
    return ForecastRow(
        reckoning.name,
        interval(forecast),
        quantity(actual, forecast.unit),
        f"{side} the interval{_distance(reckoning.error)}",
    )


def _distance(error: float | None) -> str:
    """How far the actual value lies from the forecast, as a share of it."""
    if error is None:
        return ""
    rounded = f"{abs(error):.0%}"
    return ", as forecast" if rounded == "0%" else f", {rounded} {'above' if error > 0 else 'below'} the forecast"


@dataclass(frozen=True)
class TrialFamily:
    """A family's trials; `summary` says how they ended."""

    name: str
    trials: tuple[Trial, ...]
    summary: str


def trial_families(records: Records) -> list[TrialFamily]:
    """The families that have trials, the worst first, each with its worst trials first; else in the gate's order."""
    record = records.get("preflight")
    checks = by_badness(record.checks) if record is not None else []
    by_check = [(check.name, tuple(by_badness(trials_of([check])))) for check in checks]
    return [TrialFamily(name, trials, check_summary(trials)) for name, trials in by_check if trials]


def has_trials(check: CheckResult) -> bool:
    """True for a check whose details are told here, and need no table of their own."""
    return bool(trials_of([check]))


def trials_standing(records: Records) -> str:
    """All trials in a sentence: how many, in how many seconds, with how many updates, and how they ended."""
    trials = [trial for family in trial_families(records) for trial in family.trials]
    seconds, updates = sum(trial.seconds for trial in trials), sum(trial.optimizer_steps for trial in trials)
    made = f"{updates:,} optimizer {'update' if updates == 1 else 'updates'}"
    return f"{len(trials)} checks in {seconds:.1f} s, with {made}: {check_summary(trials)}."


def trial_words(trial: Trial) -> tuple[tuple[str, str], ...]:
    """Symptom, cause and fix of a trial that did not pass, each if there is one."""
    if trial.status in ("pass", "not_applicable"):
        return ()
    named = (("Symptom", trial.symptom), ("Likely cause", trial.cause), ("Fix", trial.fix))
    return tuple((name, text) for name, text in named if text)


def trial_note(trial: Trial) -> str:
    """What the status means for the run, in the words of the checks' table."""
    return check_note(
        CheckResult(name=trial.check, status=trial.status, severity=trial.severity, required=trial.required)
    )


@dataclass(frozen=True)
class SeedRow:
    """One training of a stage as text; `note` says whether it counts, and what would have stopped it."""

    stage: str
    seed: int
    val_loss: str
    val_score: str
    note: str


def seed_rows(records: Records) -> list[SeedRow]:
    """Every training of the stages that had several."""
    return [_seed_row(stage, trained) for stage in stages_of(records) for trained in stage.trained]


def score_name(records: Records) -> str:
    """What the trainings' score is, as a column is headed."""
    named = [trained.score for stage in stages_of(records) for trained in stage.trained]
    return f"Validation {metric_name(named[0])}" if named else ""


def curve_sentences(records: Records) -> list[str]:
    """What the pilot expected of full, whether it came so, and what twice the rows of full would give."""
    stages = stages_of(records)
    sentences = [f"After {stage.kind}: {stage.data_curve.told}." for stage in stages if stage.data_curve is not None]
    return [*sentences[:1], *_what_came(stages), *sentences[1:]]


def _seed_row(stage: StageReport, trained: SeedResult) -> SeedRow:
    notes = ["this one counts"] if trained.seed == stage.seed else []
    notes += [f"would be stopped by {', '.join(trained.stopped_by)}"] if trained.stopped_by else []
    notes += [f"gave no answer: {trained.error}"] if trained.error is not None else []
    loss, score = (("not measured" if value is None else figure(value)) for value in (trained.val_loss, trained.scored))
    return SeedRow(stage.kind, trained.seed, loss, score, "; ".join(notes))


def _what_came(stages: Sequence[StageReport]) -> list[str]:
    reached = reached_by_full(stages)
    if reached is None or reached.forecast is None or reached.actual is None:
        return []
    side = "inside" if reached.inside else "above" if reached.actual > reached.forecast.high else "below"
    return [f"Full reached {figure(reached.actual)}, {side} the interval."]
