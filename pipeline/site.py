"""What `trainworthy site` does: reads champions, newest runs and cost of all use cases, and writes a page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainworthy.lifecycle.errors import RecordError, SettingsError, UseCaseError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.history import tenures
from trainworthy.lifecycle.promotion.log import LogEntry, VerdictLog
from trainworthy.lifecycle.protocol.records import STEPS, DatasetVersion, Record, Step
from trainworthy.lifecycle.report.first_page import quality
from trainworthy.lifecycle.report.outcome import outcome, record_of
from trainworthy.lifecycle.report.site import Champion, LatestRun, UseCaseRow, render_site
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.store import StateStore
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import read_settings, use_case_folders
from trainworthy.resources.shared_state import report_of, shared_state

RECENT_DAYS = 30


def site(out: Path | None) -> str:
    """Write index.html and the reports that it links to below `out`, by default <state>/site; what was written.

    Raises SettingsError for a folder that holds something else, or that cannot be written.
    """
    settings, now = read_settings(), datetime.now(UTC)
    state, shared = StateFolder(settings.var), shared_state(settings)
    out = (out or state.folder("site")).absolute()
    _refuse_other(out)
    reports: dict[str, Path] = {}

    def linked(use_case: str, run_id: str) -> str | None:
        """The report's place beside the page, to be copied there; None of a run without one."""
        source = report_of(settings, use_case, run_id)
        if not source.is_file():
            return None
        reports[place := f"reports/{use_case}/{run_id}.html"] = source
        return place

    rows = [_row(shared, folder, now, linked) for folder in use_case_folders(settings)]
    try:
        for place, source in reports.items():
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, out / place)
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "index.html", render_site(rows, now.isoformat(timespec="seconds"), RECENT_DAYS).encode())
    except OSError as error:
        fix = "name a folder that can be written: trainworthy site --out FOLDER"
        raise SettingsError(f"the site cannot be written: {error.strerror}", value=str(out), fix=fix) from None
    lines = [f"wrote {out / 'index.html'}: {len(rows)} use cases, {len(reports)} reports"]
    return "\n".join([*lines, *(f"  {row.name}: {row.problem}" for row in rows if row.problem)])


def _refuse_other(out: Path) -> None:
    """The page is replaced at each call, so a folder with a page of somebody else's is left alone."""
    fix = "name a new folder, or one that this command wrote: trainworthy site --out FOLDER"
    if out.exists() and not out.is_dir():
        raise SettingsError("the site needs a folder, and this is a file", value=str(out), fix=fix)
    page = out / "index.html"
    if page.is_file() and "<title>Use cases</title>" not in page.read_text(encoding="utf-8", errors="replace"):
        raise SettingsError("there is a page that this command did not write", value=str(page), fix=fix)


def _row(shared: StateStore, folder: Path, now: datetime, linked: Callable[[str, str], str | None]) -> UseCaseRow:
    """What the state knows of a use case. What cannot be read is said, and the rest is shown."""
    name, store, problems = folder.name, StateRecords(shared), list[str]()
    question, champion, latest = "", None, None
    try:
        question = load_use_case(folder).spec.description
    except UseCaseError as error:
        problems.append(f"the use case cannot be loaded, {error.in_brief}")
    try:
        champion = _champion(store, log.read(VerdictLog(shared, name)), linked)
    except RecordError as error:
        problems.append(f"the champion cannot be read: {error.problem}")
    runs = store.run_ids(name)
    try:
        latest = _latest(store, name, runs, linked)
    except RecordError as error:
        problems.append(f"the newest run cannot be read: {error.problem}")
    costs, unread = _costs(store, name)
    if unread:
        problems.append(f"cost without {unread} records that cannot be read")
    recent = (now - timedelta(days=RECENT_DAYS)).isoformat(timespec="seconds")
    return UseCaseRow(
        name=name,
        question=question,
        champion=champion,
        latest=latest,
        runs=len(runs),
        usd=sum(usd for _, usd in costs),
        usd_recent=sum(usd for made, usd in costs if made >= recent),
        problem="; ".join(problems),
    )


def _champion(
    store: StateRecords, entries: Sequence[LogEntry], linked: Callable[[str, str], str | None]
) -> Champion | None:
    live = next((tenure.entry for tenure in tenures(entries) if tenure.until is None), None)
    if live is None:
        return None
    verdict = store.get(live.use_case, "promotion", live.verdict_sha256)
    records: dict[Step, Record] = {
        step: store.get(live.use_case, step, verdict.parents[step]) for step in STEPS if step in verdict.parents
    }
    dataset = record_of(records, "dataset", DatasetVersion)
    return Champion(
        version=live.model_version,
        since=live.written_at,
        dataset=f"{dataset.name}@{dataset.revision}" if dataset else "?",
        figures=tuple(quality(records)),
        report=linked(live.use_case, verdict.provenance.run_id),
    )


def _latest(
    store: StateRecords, name: str, runs: Sequence[str], linked: Callable[[str, str], str | None]
) -> LatestRun | None:
    if not runs:
        return None
    records: dict[Step, Record] = {
        step: record for step in STEPS if (record := store.of_run(name, step, runs[0])) is not None
    }
    if not records:
        return None
    newest = max(record.provenance.created_at for record in records.values())
    return LatestRun(outcome(records, None), newest, linked(name, runs[0]))


def _costs(store: StateRecords, name: str) -> tuple[list[tuple[str, float]], int]:
    """When each record was made and what it cost in USD; and how many cannot be read."""
    costs, unread = list[tuple[str, float]](), 0
    for content in store.contents(name):
        try:
            values = json.loads(content)
            costs.append((str(values["provenance"]["created_at"]), float(values["cost"]["usd"])))
        except (ValueError, KeyError, TypeError):
            unread += 1
    return costs, unread
