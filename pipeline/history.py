"""The history of a use case as text: the verdict log, with data and reasons from the verdicts' records."""

from __future__ import annotations

from collections.abc import Sequence

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion.history import tenures
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.records import DatasetVersion, Verdict
from trainworthy.lifecycle.storage.records import FileRecordStore
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.pipeline.show import judge_fix, verdict_log
from trainworthy.resources.settings import read_settings


def history_text(use_case: str) -> str:
    """Champions by time, then the verdicts that held a model back. Raises RecordError for a broken log."""
    entries, store = verdict_log(use_case), FileRecordStore(StateFolder(read_settings().var))
    if not entries:
        return f"{use_case} was never judged; {judge_fix(use_case, entries)}"
    live = [
        (_time(tenure.entry.written_at), _time(tenure.until) if tenure.until else "now", *_row(store, tenure.entry))
        for tenure in tenures(entries)
    ]
    held = [(_time(e.written_at), *_row(store, e)) for e in entries if e.action in ("shadow", "reject")]
    parts = [_table(("from (UTC)", "until", *_COLUMNS), live)] if live else [f"{use_case} never had a champion"]
    parts += [f"held back:\n{_table(('at (UTC)', *_COLUMNS), held)}"] if held else []
    return "\n\n".join(parts)


_COLUMNS = ("model", "dataset", "action", "why")


def _row(store: FileRecordStore, entry: LogEntry) -> tuple[str, str, str, str]:
    """Model, dataset, action, why. A record that cannot be read is told where its words would stand."""
    try:
        verdict = store.get(entry.use_case, "promotion", entry.verdict_sha256)
        dataset = store.get(entry.use_case, "dataset", verdict.parents["dataset"])
    except RecordError as error:
        return (f"version {entry.model_version}", "?", entry.action, entry.reason or f"? ({error.problem})")
    assert isinstance(verdict, Verdict)
    assert isinstance(dataset, DatasetVersion)
    why = entry.reason or verdict.reasons[0]
    return (f"version {entry.model_version}", f"{dataset.name}@{dataset.revision}", entry.action, why)


def _time(written_at: str) -> str:
    """To the second, without the zone: the log is written in UTC."""
    return written_at[:19].replace("T", " ")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest value; the last one is open."""
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles) - 1)]
    lines = [[value.ljust(width) for value, width in zip(row[:-1], widths, strict=True)] for row in (titles, *rows)]
    return "\n".join("  ".join([*line, row[-1]]) for line, row in zip(lines, (titles, *rows), strict=True))
