"""The record store: records by sha256, written once, and three kinds of pointers to them.

run:       which record a step of one run made or reused; a step reads its own run's records.
newest:    the newest passed record of a step, for a step materialized alone. A validation leaves it as it is.
identity:  the passed record of an identity, for reuse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Protocol

from pydantic import ValidationError

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.records import FORM, RECORD_TYPES, Record, Step, StoppedStep, Written
from trainworthy.lifecycle.storage.shared.store import StateStore, point, put_same


class RecordStore(Protocol):
    """What a store of records offers."""

    def put(self, record: Record, run_id: str, *, newest: bool = True) -> str: ...
    def reuse(self, record: Record, run_id: str, *, newest: bool = True) -> None: ...
    def get(self, use_case: str, step: Step, sha256: str) -> Record: ...
    def of_run(self, use_case: str, step: Step, run_id: str) -> Record | None: ...
    def newest(self, use_case: str, step: Step) -> Record | None: ...
    def by_identity(self, use_case: str, step: Step, identity: str) -> Record | None: ...


def record_bytes(record: Record) -> bytes:
    """The one byte form of a record; its hash is the record's sha256.

    A record that was read, and not changed since, has the bytes that it was written with: a form that has more fields
    by now would dump it otherwise, and what names it by its sha256 would no longer find it.
    """
    form = canonical_json(record.model_dump(mode="json"))
    written = record.written
    return written.content if written is not None and written.form_sha256 == _sha256(form) else form


def record_sha256(record: Record) -> str:
    """Integrity of a record: hash of its byte form."""
    return _sha256(record_bytes(record))


def as_written(record: Record, content: bytes) -> Record:
    """A record that was read from `content`, with these bytes."""
    form = canonical_json(record.model_dump(mode="json"))
    return record.with_written(Written(content=content, form_sha256=_sha256(form)))


class StateRecords:
    """Records in the state: records/<use case>/{objects,runs,newest,identity}."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def put(self, record: Record, run_id: str, *, newest: bool = True) -> str:
        """Write a record and point the run at it; a passed one also becomes reusable and, if wanted, newest."""
        content = record_bytes(record)
        sha256 = _sha256(content)
        put_same(self._store, _object(record.use_case, sha256), content)
        self._point(record.use_case, "runs", run_id, record.kind, sha256)
        if record.passed:
            if newest:
                self._point(record.use_case, "newest", "all", record.kind, sha256)
            self._point(record.use_case, "identity", record.kind, record.identity, sha256)
        return sha256

    def reuse(self, record: Record, run_id: str, *, newest: bool = True) -> None:
        """Point the run at a record that an earlier run made; `newest` as for put."""
        sha256 = record_sha256(record)
        self._point(record.use_case, "runs", run_id, record.kind, sha256)
        if newest:
            self._point(record.use_case, "newest", "all", record.kind, sha256)

    def get(self, use_case: str, step: Step, sha256: str) -> Record:
        """The record of that hash. Raises RecordError if it is missing or was changed."""
        key = _object(use_case, sha256)
        stored = self._store.get(key)
        if stored is None:
            raise RecordError(
                f"the {step} record is missing", value=sha256, fix=f"materialize {use_case}/{step} again",
                code="record.missing",
            )  # fmt: skip
        content = stored.content
        if _sha256(content) != sha256:
            fix = f"delete {self._store.where}/{key} and materialize {use_case}/{step} again"
            raise RecordError(
                f"the {step} record was changed after it was written", value=sha256, fix=fix, code="record.changed"
            )
        values = json.loads(content)
        kind = StoppedStep if "error" in values else RECORD_TYPES[step]
        fix = f"materialize {use_case}/{step} again"
        if values.get("form", 1) > FORM:
            problem = (
                f"the {step} record was written by a newer Trainworthy (form {values['form']}, known up to {FORM})"
            )
            fix = "use that version, or a state folder of this one's own"
            raise RecordError(problem, value=sha256, fix=fix, code="record.newer_form")
        try:
            record = kind.model_validate_json(content)
        except ValidationError:
            problem = f"the {step} record is of another version's form"
            raise RecordError(problem, value=sha256, fix=fix, code="record.other_form") from None
        if record.kind != step:
            problem = f"a pointer to the {step} record names one of {record.kind}"
            raise RecordError(problem, value=sha256, fix=fix, code="record.other_step")
        return as_written(record, content)

    def of_run(self, use_case: str, step: Step, run_id: str) -> Record | None:
        """The record that this run made or reused for the step."""
        return self._follow(use_case, step, "runs", run_id, step)

    def run_ids(self, use_case: str) -> list[str]:
        """Runs that made or reused a record, the newest first."""
        return self._store.children(f"records/{use_case}/runs")

    def contents(self, use_case: str) -> Iterator[bytes]:
        """What lies there as records, whatever state they are in."""
        for key in sorted(self._store.names(f"records/{use_case}/objects")):
            stored = self._store.get(key)
            if stored is not None:
                yield stored.content

    def newest(self, use_case: str, step: Step) -> Record | None:
        """The newest record of the step that passed its gate; of promotion the last judgement, not one found again."""
        return self._follow(use_case, step, "newest", "all", step)

    def by_identity(self, use_case: str, step: Step, identity: str) -> Record | None:
        """The passed record of an equal step, if one was made; one of an older form counts as none."""
        try:
            return self._follow(use_case, step, "identity", step, identity)
        except RecordError:
            return None

    def _point(self, use_case: str, kind: str, group: str, name: str, sha256: str) -> None:
        point(self._store, _pointer(use_case, kind, group, name), sha256.encode())

    def _follow(self, use_case: str, step: Step, kind: str, group: str, name: str) -> Record | None:
        stored = self._store.get(_pointer(use_case, kind, group, name))
        return self.get(use_case, step, stored.content.decode()) if stored is not None else None


def _object(use_case: str, sha256: str) -> str:
    return f"records/{use_case}/objects/{sha256}.json"


def _pointer(use_case: str, kind: str, group: str, name: str) -> str:
    return f"records/{use_case}/{kind}/{group}/{name}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
