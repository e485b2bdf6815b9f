"""Where the records come from: hashes, seeds and commits, as rows and words."""

from __future__ import annotations

from dataclasses import dataclass

from trainworthy.lifecycle.protocol.records import (
    STEPS,
    DatasetVersion,
    EvaluationReport,
    Provenance,
    Record,
    Snapshot,
    StageReport,
    Verdict,
)
from trainworthy.lifecycle.report.outcome import Records, record_of


@dataclass(frozen=True)
class HashRow:
    """One sha256 or identity and what it belongs to."""

    group: str
    name: str
    value: str


def commit_state(origin: Provenance) -> str:
    """Whether the working tree was what the commit says."""
    if origin.git_commit is None:
        return "no commit"
    return {True: "with uncommitted changes", False: "clean", None: "state unknown"}[origin.git_dirty]


def hash_rows(records: Records) -> list[HashRow]:
    """Every hash that the records name: of data, of the records themselves, and what the verdict binds."""
    rows: list[HashRow] = []
    for record in records.values():
        rows += [HashRow(group, name, value) for group, name, value in _data_hashes(record) if value]
    rows += [HashRow("identity of step", step, records[step].identity) for step in STEPS if step in records]
    parents = {step: sha for record in records.values() for step, sha in record.parents.items()}
    rows += [HashRow("sha256 of record", step, sha) for step, sha in parents.items()]
    verdict = record_of(records, "promotion", Verdict)
    if verdict:
        rows += [HashRow("bound by the verdict", name, value) for name, value in verdict.binds.items()]
        rows.append(HashRow("verdict", "evaluation identity", verdict.evaluation_identity))
        if verdict.previous_verdict_sha256:
            rows.append(HashRow("verdict", "previous verdict", verdict.previous_verdict_sha256))
    return rows


def seeds(records: Records) -> list[int]:
    """Every seed that a step names."""
    return sorted({seed for record in records.values() for seed in record.provenance.seeds})


def _data_hashes(record: Record) -> list[tuple[str, str, str | None]]:
    if isinstance(record, DatasetVersion):
        return [("dataset", "content", record.content_hash), ("dataset", "DVC", record.dvc_hash)]
    if isinstance(record, Snapshot):
        splits = [("snapshot", f"{name} split", split.file.sha256) for name, split in record.splits.items()]
        own = [("content", record.content_hash), ("contract", record.contract_sha256), ("label", record.label_sha256)]
        return [*(("snapshot", name, value) for name, value in own), *splits]
    if isinstance(record, StageReport):
        own = [("parameters", record.parameters_sha256), ("checkpoint", record.checkpoint_sha256)]
        own.append(("artifact", record.artifact_sha256))
        return [(record.kind, name, value) for name, value in own]
    if isinstance(record, EvaluationReport):
        return [
            ("evaluation", "artifact", record.artifact_sha256),
            ("evaluation", "predictions", record.predictions.sha256),
        ]
    return []
