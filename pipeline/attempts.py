"""The table of attempts as text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from trainworthy.lifecycle.protocol.attempts import AttemptRow
from trainworthy.lifecycle.report.formatting import seconds
from trainworthy.lifecycle.wording import count
from trainworthy.pipeline.show import table_text
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.settings import read_settings, use_case_folder

SHOWN = 30
_TITLES = ("from (UTC)", "use case", "step", "worker", "took", "USD", "steps", "run", "where", "ended")


def attempts_text(use_case: str, *, everything: bool) -> str:
    """Attempts, newest first, of one use case or of all; SHOWN of them unless `everything` is asked for.

    Raises SettingsError for an unknown use case, AttemptError if the table cannot be read.
    """
    settings = read_settings()
    if use_case:
        use_case_folder(settings, use_case)
    table = attempt_table(settings)
    rows = table.rows(use_case, most=None if everything else SHOWN + 1)
    if not rows:
        return f"no worker was started yet{f' for {use_case}' if use_case else ''} (in {table.shown})"
    shown = rows if everything else rows[:SHOWN]
    more = f", the newest; all of them: trainworthy attempts{use_case and f' {use_case}'} --all"
    now = time.time()
    text = table_text(_TITLES, [_line(row, now) for row in shown])
    return f"{text}\n\n{_total(shown)}{'' if len(shown) == len(rows) else more}"


def _total(rows: Sequence[AttemptRow]) -> str:
    """Seconds and money of these rows together. Attempts that work at the same time are each counted whole."""
    took = seconds(sum(row.seconds for row in rows))
    unpriced = sum(not row.started.charged_to.sku for row in rows)
    left_out = f" ({count(unpriced)} of them without a price)" if unpriced else ""
    attempts = "1 attempt" if len(rows) == 1 else f"{count(len(rows))} attempts"
    return f"{attempts}{left_out}: {took} and {sum(row.usd for row in rows):.4f} USD together"


def _line(row: AttemptRow, now: float) -> tuple[str, ...]:
    started = row.started
    charged_to, stage = started.charged_to, started.stage
    worker = f"{started.job_kind} {stage}" if stage not in (None, charged_to.step) else started.job_kind
    if _trains_again(row):
        worker = "first updates again"
    return (
        f"{datetime.fromtimestamp(started.started_at, UTC):%Y-%m-%d %H:%M:%S}",
        charged_to.use_case,
        charged_to.step,
        worker,
        seconds(row.seconds),
        f"{row.usd:.4f}" if charged_to.sku else "-",
        _steps(row),
        charged_to.run_id[:8],
        f"{started.process.host} {started.launcher}",
        _ended(row, now),
    )


def _steps(row: AttemptRow) -> str:
    """From which step to which checkpoint, of a training."""
    if row.started.from_step is None or _trains_again(row):
        return "-"
    reached = row.ended.to_step if row.ended else None
    return f"{row.started.from_step} to {'?' if reached is None else reached}"


def _trains_again(row: AttemptRow) -> bool:
    """The judgement's control of reproducibility, which makes the first updates anew and keeps no checkpoint."""
    return row.started.job_kind == "train" and row.started.charged_to.step == "promotion"


def _ended(row: AttemptRow, now: float) -> str:
    if row.ended is None:
        return f"not yet; its last sign was {seconds(max(0.0, now - row.last_sign))} ago"
    end = row.ended
    code = f" ({end.exit_code})" if end.exit_code else ""
    detail = " ".join(end.told.split())
    return f"{end.outcome}{(end.cause and f', {end.cause}') or ''}{code}{detail and f': {detail}'}"
