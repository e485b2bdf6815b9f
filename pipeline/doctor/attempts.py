"""The table of attempts: it takes rows, and none of its attempts waits for an end that nobody will write."""

from __future__ import annotations

from collections.abc import Iterator

from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.pipeline.doctor.runs import FIX
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.attempts import kept_ends, lost_attempts, settle
from trainworthy.resources.settings import Settings


def attempts(settings: Settings) -> Iterator[CheckResult]:
    """The table can be read and written, has every end that was kept beside it, and no attempt is lost."""
    table = attempt_table(settings)
    table.try_write()
    yield CheckResult(name="attempts", status="pass", evidence=f"every start of a worker is entered in {table.shown}")
    unentered, lost = kept_ends(settings), lost_attempts(settings)
    named = "; ".join(
        f"{row.started.charged_to.use_case} {row.started.charged_to.step}: {why}" for row, why in lost[:5]
    )
    yield holds(
        "open_attempts",
        not unentered and not lost,
        severity="warning",
        observed=len(unentered) + len(lost),
        evidence=(f"{len(unentered)} ends are kept in {unentered[0].parent} and not entered; " if unentered else "")
        + (f"{len(lost)} were left open: {named}" if lost else "none was left open"),
        fix=f"{FIX} enters and ends them, and so does the next start of a worker",
    )


def repair_attempts(settings: Settings) -> Iterator[str]:
    """Enter the ends that were kept, and end what is lost."""
    yield from settle(settings)
