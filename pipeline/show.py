"""What the command line prints of verdicts, as text, and where a use case stands.

The history of a use case as text: the verdict log, with data and reasons from the verdicts' records.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from trainworthy.lifecycle.cost.parts import cost_parts
from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.history import RolledBack, rolled_back, tenures
from trainworthy.lifecycle.promotion.judged import Standing, standing
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.leak import suspicions
from trainworthy.lifecycle.protocol.records import STEPS, Cost, DatasetVersion, Record, Snapshot, Step, Verdict
from trainworthy.lifecycle.run_config import first_model_fix, told_command
from trainworthy.lifecycle.storage.records import StateRecords, record_sha256
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.lifecycle.wording import count
from trainworthy.pipeline.not_passed import not_passed_text
from trainworthy.resources.settings import dagster_url, mlflow_url, read_settings, use_case_folder
from trainworthy.resources.shared_state import records_of, report_of, verdict_log_of

if TYPE_CHECKING:
    from trainworthy.lifecycle.report.outcome import RunOutcome


# As the fix of what ended before its end begins, by itself no one's fault.
_AGAIN = "Run again: "
# Of why a run was stopped, in a sentence.
MOST_LETTERS = 200


def newest_verdict(use_case: str) -> Verdict:
    """The verdict that was entered in the log last, not the record that was written last: that one may never count.

    Raises RecordError if the use case was never judged, or if the verdict's record cannot be read.
    """
    entries, store = verdict_log(use_case), records_of(read_settings())
    entry = log.last_judged(entries)
    if entry is None:
        raise _never_judged(use_case, store, judge_fix(use_case, entries))
    verdict = store.get(use_case, "promotion", entry.verdict_sha256)
    assert isinstance(verdict, Verdict)
    return verdict


def _never_judged(use_case: str, store: StateRecords, fix: str) -> RecordError:
    """Why there is none: the newest run's verdict was not entered, or it was stopped before, or there was no run."""
    verdict = store.newest(use_case, "promotion")
    if isinstance(verdict, Verdict):
        problem = "the newest verdict is not in the log: its run ended before it was entered, so it never counted"
        return RecordError(problem, value=verdict.provenance.run_id, fix=fix)
    run_id, stop = newest_stop(use_case, store)
    if stop is None:
        if run_id:
            problem = "there is no verdict yet: the newest run has not come to one, or was interrupted"
            going_on = f"{fix} (what it trained goes on from its newest checkpoint)"
            return RecordError(problem, value=f"run {run_id}", fix=going_on)
        return RecordError("there is no verdict yet", value=use_case, fix=fix)
    # In full it stands among the checks that did not pass, which are told first.
    why = textwrap.shorten(stop.why, MOST_LETTERS, placeholder=" …")
    problem = f"there is no verdict yet: the newest run was {stop.label.lower()}: {why}"
    first = "; ".join(stop.changes)
    # What only has to be run again needs one command, after what is said of it.
    again = first.startswith(_AGAIN) and len(stop.changes) == 1
    how = f"{first.removeprefix(_AGAIN)}; {fix}" if again else f"{first}; then {fix}"
    return RecordError(problem, value=f"run {run_id}", fix=how)


def newest_stop(use_case: str, store: StateRecords) -> tuple[str, RunOutcome | None]:
    """The newest run, and why it was stopped before a verdict; None if it was not, or if its records can't be read."""
    from trainworthy.lifecycle.report.outcome import outcome, stopped_step

    run_id = next(iter(store.run_ids(use_case)), "")
    records = _records_of_run(use_case, store, run_id)
    step = stopped_step(records, None)
    return run_id, outcome(records, step) if step is not None else None


def stop_text(use_case: str) -> str:
    """What did not pass in the newest run, if that was stopped before a verdict; else empty."""
    store = records_of(read_settings())
    run_id, stop = newest_stop(use_case, store)
    return not_passed_text(_records_of_run(use_case, store, run_id)) if stop is not None else ""


def _records_of_run(use_case: str, store: StateRecords, run_id: str) -> dict[Step, Record]:
    """The records that the run left; none if one of them can't be read."""
    try:
        return {step: record for step in STEPS if run_id and (record := store.of_run(use_case, step, run_id))}
    except RecordError:
        return {}


def judge_fix(use_case: str, entries: tuple[log.LogEntry, ...]) -> str:
    """How a verdict comes about: without a champion the first run must say that it is the first."""
    if log.champion(entries) is None:
        return first_model_fix(use_case_folder(read_settings(), use_case))
    return f"run: {told_command('train', use_case)}"


def champion_version(use_case: str) -> str | None:
    """Version of the champion by the verdict log, None without one. Raises RecordError for a broken log."""
    entry = log.champion(verdict_log(use_case))
    return entry.model_version if entry else None


def verdict_log(use_case: str) -> tuple[log.LogEntry, ...]:
    """The entries of the verdict log. Raises SettingsError for an unknown use case, RecordError for a broken log."""
    settings = read_settings()
    use_case_folder(settings, use_case)
    return log.read(verdict_log_of(settings, use_case))


def standing_of(use_case: UseCase) -> Standing:
    """Champion and waiting dataset versions, by the verdict log. Raises RecordError for a broken one."""
    store = records_of(read_settings())
    return standing(use_case, verdict_log(use_case.name), store)


def find_use_case(name: str) -> UseCase:
    """The use case of that name. Raises SettingsError with the nearest name, UseCaseError if it cannot be loaded."""
    return load_use_case(use_case_folder(read_settings(), name))


def verdict_text(verdict: Verdict) -> str:
    """Decision, reasons, cost and where to look, for a terminal."""
    from trainworthy.pipeline.doctor.ports import start_command

    state = StateFolder(read_settings().var)
    report = report_of(read_settings(), verdict.use_case, verdict.provenance.run_id)
    run_id = verdict.provenance.run_id
    judged = f"judged {verdict.provenance.created_at[:16].replace('T', ' ')} UTC"
    off = rolled_back(verdict_log(verdict.use_case), verdict.model_version) if verdict.decision == "promote" else None
    since = f"Since then: {off.sentence}.\n" if off else ""
    since += _stopped_since(verdict) + _not_entered(verdict.use_case)
    champion = log.champion(verdict_log(verdict.use_case))
    live = f"version {champion.model_version}" if champion else "none"
    return (
        f"\n{verdict.use_case}: {decided(verdict, off)} (model version {verdict.model_version}), {judged}\n"
        f"{since}"
        f"{_why(verdict)}\n"
        f"{not_passed_text(_records_of_run(verdict.use_case, records_of(read_settings()), run_id))}\n"
        f"champion    {live}\n"
        f"{_decides(verdict, champion)}"
        f"{_judged_on(verdict)}"
        f"cost        {cost_text(verdict, _costs_of_steps(verdict))}\n"
        f"{_suspicions(verdict)}"
        f"{_part(verdict)}"
        f"{_answers(verdict, state)}"
        f"report      {report}\n"
        f"Dagster UI  {start_command('ui')}, then {dagster_url()}/runs/{run_id}\n"
        f"MLflow UI   {start_command('mlflow-ui')}, then {mlflow_url()}\n"
    )


def decided(verdict: Verdict, off: RolledBack | None) -> str:
    """The decision as it stands today; `off` is the rollback that took its model off."""
    return ", ".join(filter(None, (verdict.decision.upper(), "rolled back since" if off else "", verdict.headline)))


def cost_text(verdict: Verdict, costs: Mapping[Step, Cost]) -> str:
    """The cost of the model with its parts, by what its steps cost, and how much of it this run paid."""
    from trainworthy.lifecycle.report.formatting import paid_by_run, seconds, usd

    total, parts = verdict.total_cost.usd, cost_parts(costs)
    # A record of an earlier run may be gone; parts that do not make up the total say nothing.
    whole = math.isclose(sum(part.usd for part in parts.values()), total, rel_tol=1e-6, abs_tol=1e-12)
    told = ", ".join(f"{name} {usd(part.usd)}" for name, part in parts.items())
    own = sum(verdict.step_costs.values(), verdict.cost)
    paid = paid_by_run(own.usd, total)
    return f"{usd(total)} for the model{f': {told}' if whole else ''}; {paid}, {seconds(own.wall_seconds)}"


def _snapshot(verdict: Verdict) -> Snapshot | None:
    snapshot = records_of(read_settings()).of_run(verdict.use_case, "snapshot", verdict.provenance.run_id)
    return snapshot if isinstance(snapshot, Snapshot) else None


def _judged_on(verdict: Verdict) -> str:
    """The benchmark's rows and groups, and how often its event is there."""
    from trainworthy.lifecycle.report.first_page import labelled

    snapshot = _snapshot(verdict)
    window = snapshot.splits.get("benchmark") if snapshot is not None else None
    if snapshot is None or window is None:
        return ""
    return (
        f"judged on   {count(window.rows)} rows in {count(window.groups)} groups, {labelled(snapshot.label, window)}\n"
    )


def _suspicions(verdict: Verdict) -> str:
    """A line for each input that is suspicious and not shown to be a leak."""
    snapshot = _snapshot(verdict)
    told = suspicions(snapshot.checks) if snapshot is not None else ()
    return "".join(f"suspicious  not shown to be a leak: {suspicion}\n" for suspicion in told)


def _part(verdict: Verdict) -> str:
    """How to find the part of the training that keeps the model behind a simple baseline, where one does."""
    from trainworthy.lifecycle.report.outcome import diagnosis_of_part

    records = _records_of_run(verdict.use_case, records_of(read_settings()), verdict.provenance.run_id)
    part = diagnosis_of_part(records, verdict)
    return f"diagnose    {part}\n" if part else ""


def _costs_of_steps(verdict: Verdict) -> dict[Step, Cost]:
    """What each step of the verdict's run cost when it was made, also one that was reused."""
    store, run_id = records_of(read_settings()), verdict.provenance.run_id
    costs: dict[Step, Cost] = {}
    for step in STEPS:
        record = store.of_run(verdict.use_case, step, run_id)
        if record is not None:
            costs[step] = record.cost
    return costs


def _stopped_since(verdict: Verdict) -> str:
    """That a newer run was stopped before a verdict, why, and what did not pass in it; nothing if none was."""
    run_id, stop = newest_stop(verdict.use_case, records_of(read_settings()))
    if stop is None:
        return ""
    why = textwrap.shorten(stop.why, MOST_LETTERS, placeholder=" …")
    return f"Since then: run {run_id} was {stop.label.lower()}: {why}\n{stop_text(verdict.use_case)}\n"


def _not_entered(use_case: str) -> str:
    """That the verdict which was made last is not in the log; nothing if it is, or if it can't be read."""
    with suppress(RecordError):
        made = records_of(read_settings()).newest(use_case, "promotion")
        entered = {entry.verdict_sha256 for entry in verdict_log(use_case)}
        if isinstance(made, Verdict) and record_sha256(made) not in entered:
            return f"Not in the log, so it does not count: the verdict of run {made.provenance.run_id}\n"
    return ""


def _why(verdict: Verdict) -> str:
    """What held the model back, with what it lacks, apart from the other reasons; what is worse is told first."""
    held, others = verdict.held_back_by, verdict.reasons[len(verdict.held_back_by) :]
    # A verdict from before codes has none.
    codes = verdict.codes[len(held) :] or ("",) * len(others)
    worse = [reason for code, reason in zip(codes, others, strict=True) if code.endswith(".worse")]
    rest = [reason for reason in others if reason not in worse]
    if not held and not worse:
        return _listed(verdict.reasons)
    others_title = "not held back by" if held else "promoted by"
    parts = (("held back by", held), ("decides nothing, but worth knowing", worse), (others_title, rest))
    return "\n".join(f"{title}\n{_listed(reasons)}" for title, reasons in parts if reasons)


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"  - {sentence}" for sentence in sentences)


def _decides(verdict: Verdict, champion: LogEntry | None) -> str:
    """What the champion decides where it is served, and the judged model if it is another; nothing of answers alone."""
    if champion is not None and champion.model_version == verdict.model_version:
        return _served("served", "it decides", verdict)
    lines = _served("judged", f"version {verdict.model_version} decides", verdict)
    if champion is None:
        return lines
    try:
        live = records_of(read_settings()).get(verdict.use_case, "promotion", champion.verdict_sha256)
    except RecordError as error:
        return f"served      what it decides is not known: {error.problem}\n{lines}"
    assert isinstance(live, Verdict)
    return _served("served", "it decides", live) + lines


def _served(title: str, who: str, verdict: Verdict) -> str:
    of = f"; the artifact is that of version {verdict.champion}" if verdict.of_champion else ""
    return f"{title:12}{who}: {verdict.decides.told}{of}\n" if verdict.decides is not None else ""


def _answers(verdict: Verdict, state: StateFolder) -> str:
    """Where both models' answers lie row by row, after a comparison with a champion."""
    return f"answers     {state.absolute(verdict.answers.path)}\n" if verdict.answers is not None else ""


def history_text(use_case: str) -> str:
    """Champions by time, then the verdicts that held a model back. Raises RecordError for a broken log."""
    entries, store = verdict_log(use_case), records_of(read_settings())
    if not entries:
        return f"{use_case} was never judged; {judge_fix(use_case, entries)}"
    live = [
        (_time(tenure.entry.written_at), _time(tenure.until) if tenure.until else "now", *_row(store, tenure.entry))
        for tenure in tenures(entries)
    ]
    held = [(_time(e.written_at), *_row(store, e)) for e in entries if e.action in ("shadow", "reject")]
    parts = [table_text(("from (UTC)", "until", *_COLUMNS), live)] if live else [f"{use_case} never had a champion"]
    parts += [f"held back:\n{table_text(('at (UTC)', *_COLUMNS), held)}"] if held else []
    return "\n\n".join(parts)


_COLUMNS = ("model", "dataset", "action", "why")


def _row(store: StateRecords, entry: LogEntry) -> tuple[str, str, str, str]:
    """Model, dataset, action, why. A record that cannot be read is told where its words would stand."""
    try:
        verdict = store.get(entry.use_case, "promotion", entry.verdict_sha256)
        dataset = store.get(entry.use_case, "dataset", verdict.parents["dataset"])
    except RecordError as error:
        return (f"version {entry.model_version}", "?", entry.action, entry.reason or f"? ({error.problem})")
    assert isinstance(verdict, Verdict)
    assert isinstance(dataset, DatasetVersion)
    why = entry.reason or f"{verdict.headline and f'{verdict.headline}. '}{verdict.reasons[0]}"
    return (f"version {entry.model_version}", f"{dataset.name}@{dataset.revision}", entry.action, why)


def _time(written_at: str) -> str:
    """To the second, without the zone: the log is written in UTC."""
    return written_at[:19].replace("T", " ")


def table_text(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest value; the last one is open."""
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles) - 1)]
    lines = [[value.ljust(width) for value, width in zip(row[:-1], widths, strict=True)] for row in (titles, *rows)]
    return "\n".join("  ".join([*line, row[-1]]) for line, row in zip(lines, (titles, *rows), strict=True))
