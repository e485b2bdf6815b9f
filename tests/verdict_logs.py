"""Verdict logs of a state folder, and entries as a judgement writes them."""

from __future__ import annotations

from pathlib import Path

from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import Action, LogEntry, VerdictLog
from trainworthy.lifecycle.storage.shared.folder import FolderState


def log_in(state: Path, use_case: str = "toy") -> VerdictLog:
    """The use case's verdict log in a state folder."""
    return VerdictLog(FolderState(state), use_case)


def unexpected() -> None:
    """What is called where a lease has to be waited for."""
    raise AssertionError("another process holds the lease")


def logged(
    verdicts: VerdictLog,
    *,
    action: Action,
    model_version: str,
    verdict_sha256: str,
    previous_verdict_sha256: str | None,
    reason: str = "",
) -> LogEntry:
    """An entry under a lease of its own."""
    with verdicts.lease(unexpected) as held:
        return log.append(
            verdicts,
            held,
            action=action,
            model_version=model_version,
            verdict_sha256=verdict_sha256,
            previous_verdict_sha256=previous_verdict_sha256,
            reason=reason,
        )
