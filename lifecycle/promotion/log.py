"""The append-only log of verdicts: which model was promoted, when, and after which.

One JSON object a line. Each entry names the hash of the entry before it, so a line that was changed,
removed or put between others breaks the chain and the log is refused. Entries cut off at the end leave a
valid chain: the newest verdict's record, which names its predecessor, tells.

Who writes holds the log's lease, whose token rises with each holder and stands in the entry. A holder that was taken
over, because it was away for too long, is refused. Where it may still be writing, the next one first adds a line of its
token alone, so that what the other one has read is no longer the newest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from trainworthy.lifecycle.errors import LeaseLostError, RecordError
from trainworthy.lifecycle.identity import canonical_json, sha256_json
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.durable.bucket import ObjectChangedError
from trainworthy.lifecycle.storage.shared.store import HeldLease, Lost, StateStore, StoredObject

# A line of who took the lease from a holder that never let go.
_FENCE, _TOKEN = re.compile(rb'\{"token":(?P<token>\d+)\}\n'), re.compile(rb'"token":(\d+)')
Action = Literal["promote", "shadow", "reject", "rollback"]


class LogEntry(Frozen):
    """One line of the log.

    `verdict_sha256` of a rollback is that of the verdict it goes back to, `reason` the operator's words; a verdict's
    own reasons are in its record. Lines written before rollbacks had reasons lack that key. `token` is that of the
    lease under which it was written, 0 of lines from before there were leases.
    """

    number: int
    use_case: str
    action: Action
    model_version: str
    verdict_sha256: str
    previous_verdict_sha256: str | None
    previous_entry_sha256: str | None
    written_at: str
    reason: str = ""
    token: int = 0
    entry_sha256: str


@dataclass(frozen=True)
class VerdictLog:
    """The log of a use case, in the state: verdicts/<use case>.jsonl."""

    store: StateStore
    use_case: str

    @property
    def key(self) -> str:
        return f"verdicts/{self.use_case}.jsonl"

    @property
    def where(self) -> str:
        """What people call it."""
        return f"{self.store.where}/{self.key}"

    def exists(self) -> bool:
        """True if anything was entered."""
        return self.store.get(self.key) is not None

    def lease(self, say_waiting: Callable[[], None]) -> AbstractContextManager[HeldLease]:
        """Hold what an entry and a move of the alias need: one judgement or rollback of a use case at a time."""
        return _lease(self, say_waiting)


def append(
    verdicts: VerdictLog,
    held: HeldLease,
    *,
    action: Action,
    model_version: str,
    verdict_sha256: str,
    previous_verdict_sha256: str | None,
    reason: str = "",
) -> LogEntry:
    """Add an entry and return it once it is stored; `held` is the log's lease.

    `previous_verdict_sha256` must be the newest entry's (None in an empty log): of two runs that were
    judged against the same state, the second is refused. Raises RecordError, also for a broken chain, and
    LeaseLostError once another holds the lease.
    """
    tried: LogEntry | None = None
    while True:
        stored, (entries, token) = _stored(verdicts)
        if tried is not None and tried.entry_sha256 in {entry.entry_sha256 for entry in entries}:
            # The store wrote it, and its answer was lost: what it then refused was the same once more.
            return tried
        if token > held.token:
            raise _lost(verdicts)("nobody any more")
        newest = entries[-1] if entries else None
        if (newest.verdict_sha256 if newest else None) != previous_verdict_sha256:
            raise RecordError(
                f"the log {verdicts.where} moved on since this verdict was made",
                value=newest.verdict_sha256 if newest else None,
                fix="run promotion again: it is judged against the newest state",
                code="verdict_log.moved_on",
            )
        values: dict[str, Any] = {
            "number": len(entries) + 1,
            "use_case": verdicts.use_case,
            "action": action,
            "model_version": model_version,
            "verdict_sha256": verdict_sha256,
            "previous_verdict_sha256": previous_verdict_sha256,
            "previous_entry_sha256": newest.entry_sha256 if newest else None,
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "reason": reason,
            "token": held.token,
        }
        tried = LogEntry(**values, entry_sha256=sha256_json(values))
        if _written(verdicts, held, stored, canonical_json(tried.model_dump())):
            return tried


def read(verdicts: VerdictLog) -> tuple[LogEntry, ...]:
    """All entries, oldest first; empty if there is no log. Raises RecordError for a broken chain."""
    return _stored(verdicts)[1][0]


def champion(entries: tuple[LogEntry, ...]) -> LogEntry | None:
    """The entry that made the present champion: the newest promotion or rollback."""
    return next((entry for entry in reversed(entries) if entry.action in ("promote", "rollback")), None)


def last_judged(entries: tuple[LogEntry, ...]) -> LogEntry | None:
    """The entry of the newest verdict, which a rollback is not."""
    return next((entry for entry in reversed(entries) if entry.action != "rollback"), None)


@contextmanager
def _lease(verdicts: VerdictLog, say_waiting: Callable[[], None]) -> Iterator[HeldLease]:
    # A log that cannot be trusted is told where it is read: nobody adds to it.
    known = _highest_token(_content(verdicts.store.get(verdicts.key)))
    name, lost = f"verdicts/{verdicts.use_case}", _lost(verdicts)
    with verdicts.store.lease(name, known, say_waiting, lost, lambda held: _fence(verdicts, held)) as held:
        yield held


def _fence(verdicts: VerdictLog, held: HeldLease) -> None:
    """Write over what the holder before has read: an entry of its that is still on its way is refused by its version.

    Whether that one ended or sleeps is not known.
    """
    while True:
        stored = verdicts.store.get(verdicts.key)
        torn = stored is not None and not stored.content.endswith(b"\n")
        # To a torn log nobody adds an entry.
        if torn or _written(verdicts, held, stored, canonical_json({"token": held.token})):
            return


def _written(verdicts: VerdictLog, held: HeldLease, stored: StoredObject | None, line: bytes) -> bool:
    """Add a line; False if the log has changed meanwhile: by somebody else, or by this very write."""
    try:
        if stored is None:
            held.check()
            verdicts.store.put_new(verdicts.key, line + b"\n")
        else:
            verdicts.store.swap(verdicts.key, stored.content + line + b"\n", stored.version, held)
    except ObjectChangedError:
        return False
    return True


def _lost(verdicts: VerdictLog) -> Lost:
    def error(host: str) -> LeaseLostError:
        return LeaseLostError(
            f"another run judges {verdicts.use_case} or rolls it back: this one was away for longer than its lease",
            value=f"{verdicts.where}, held by {host}",
            fix="nothing was entered and no alias moved by this one; run it again once the other has ended",
            code="lease_lost",
        )

    return error


def _stored(verdicts: VerdictLog) -> tuple[StoredObject | None, tuple[tuple[LogEntry, ...], int]]:
    stored = verdicts.store.get(verdicts.key)
    return stored, _parse(verdicts.where, _content(stored))


def _content(stored: StoredObject | None) -> bytes:
    return b"" if stored is None else stored.content


def _highest_token(content: bytes) -> int:
    """The highest token of any line, whether or not the lines make a log."""
    return max((int(token) for token in _TOKEN.findall(content)), default=0)


def _parse(where: str, content: bytes) -> tuple[tuple[LogEntry, ...], int]:
    """The entries, and the highest token of any line."""
    entries, token = list[LogEntry](), 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        fence = _FENCE.fullmatch(line)
        if fence is None:
            entries.append(_entry(where, number, line, entries))
        token = max(token, int(fence["token"]) if fence is not None else entries[-1].token)
    return tuple(entries), token


def _entry(where: str, number: int, line: bytes, before: Sequence[LogEntry]) -> LogEntry:
    """A line as the successor of the entries before it."""
    previous = before[-1] if before else None
    if not line.endswith(b"\n"):
        fix = "remove this last line; it was never reported"
        raise _broken(where, number, "was torn while it was written", fix, "torn")
    restore = "restore the log from a backup; the verdicts' records hold the same chain"
    try:
        entry = LogEntry.model_validate(json.loads(line))
    except (ValueError, ValidationError) as error:
        raise _broken(where, number, f"is no entry: {error}", restore, "no_entry") from error
    # Over the keys that the line has: a log stays valid when a later form adds one.
    if sha256_json(entry.model_dump(exclude={"entry_sha256"}, exclude_unset=True)) != entry.entry_sha256:
        raise _broken(where, number, "was changed after it was written", restore, "changed")
    expected = (len(before) + 1, previous and previous.entry_sha256, previous and previous.verdict_sha256)
    if (entry.number, entry.previous_entry_sha256, entry.previous_verdict_sha256) != expected:
        raise _broken(where, number, "does not follow the line before it", restore, "broken_chain")
    return entry


def _broken(where: str, number: int, problem: str, fix: str, code: str) -> RecordError:
    return RecordError(f"line {number} of the verdict log {where} {problem}", fix=fix, code=f"verdict_log.{code}")
