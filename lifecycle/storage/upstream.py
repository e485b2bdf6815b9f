"""The records that a step is made from: its own run's, else the newest ones that belong together."""

from __future__ import annotations

from collections.abc import Mapping

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.protocol.records import PARENTS, Record, Step
from trainworthy.lifecycle.storage.records import RecordStore, record_sha256


def upstream_records(store: RecordStore, use_case: str, step: Step, run_id: str) -> dict[Step, Record]:
    """Records of PARENTS[step] that passed.

    Inside a run these are the run's own. A step that is materialized alone takes the newest ones.
    Raises RecordError if one is missing, or if they were not made from each other.
    """
    records: dict[Step, Record] = {}
    for parent in PARENTS[step]:
        record = store.of_run(use_case, parent, run_id) or store.newest(use_case, parent)
        if record is None or not record.passed:
            raise RecordError(
                f"{step} needs a record of {parent} that passed its gate, and there is none",
                fix=f"materialize {use_case}/{parent} first, or run the whole job",
                code="upstream.missing",
            )
        records[parent] = record
    _refuse_mixed(store, use_case, step, records)
    return records


def parent_hashes(upstream: Mapping[Step, Record]) -> dict[str, str]:
    """sha256 of each upstream record by step."""
    return {str(step): record_sha256(record) for step, record in upstream.items()}


def _refuse_mixed(store: RecordStore, use_case: str, step: Step, records: Mapping[Step, Record]) -> None:
    """Compared by identity: a parent whose files were lost and made again is another record of the same thing."""
    hashes = parent_hashes(records)
    for record in records.values():
        for name, sha256 in record.parents.items():
            if name not in hashes or hashes[name] == sha256:
                continue
            newest = next(other for kind, other in records.items() if kind == name)
            if store.get(use_case, newest.kind, sha256).identity != newest.identity:
                raise RecordError(
                    f"{step} refuses a stale upstream: {record.kind} was made from another {name} than the newest",
                    value=f"made from {sha256[:12]}, newest is {hashes[name][:12]}",
                    fix=f"materialize {record.use_case}/{record.kind} again, or run the whole job",
                    code="upstream.stale",
                )
