"""Who trained on a dataset version: the verdicts of the log, and the runs that trained without coming to one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.records import STAGES, DatasetVersion, StoppedStep
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.records import StateRecords


class Trained(Frozen):
    """One training on `dataset` (name@version): by which run, and what came of it, in words."""

    use_case: str
    dataset: str
    run_id: str
    outcome: str


def trained_on(use_case: str, entries: Sequence[LogEntry], store: StateRecords) -> Iterator[Trained]:
    """Every verdict of the log, the newest first, then the runs without one; records that can't be read left out."""
    champion, judged = log.champion(tuple(entries)), set[str]()
    for entry in reversed(entries):
        if entry.action == "rollback":
            continue
        try:
            verdict = store.get(use_case, "promotion", entry.verdict_sha256)
            dataset = store.get(use_case, "dataset", verdict.parents["dataset"])
        except RecordError:
            continue
        live = ", the champion" if champion and champion.verdict_sha256 == entry.verdict_sha256 else ""
        judged.add(verdict.provenance.run_id)
        outcome = f"{entry.action}, model version {entry.model_version}{live}"
        yield _trained(use_case, dataset, verdict.provenance.run_id, outcome)
    for run_id in store.run_ids(use_case):
        if run_id not in judged:
            yield from _without_verdict(use_case, run_id, store)


def _without_verdict(use_case: str, run_id: str, store: StateRecords) -> Iterator[Trained]:
    """What the run itself trained; a run that reused every stage trained nothing."""
    try:
        dataset = store.of_run(use_case, "dataset", run_id)
        stages = [record for stage in STAGES if (record := store.of_run(use_case, stage, run_id))]
    except RecordError:
        return
    own = [record for record in stages if record.provenance.run_id == run_id]
    if dataset is None or not own:
        return
    last = own[-1]
    ended = "stopped at" if isinstance(last, StoppedStep) or not last.passed else "no verdict, trained up to"
    yield _trained(use_case, dataset, run_id, f"{ended} {last.kind}")


def _trained(use_case: str, dataset: object, run_id: str, outcome: str) -> Trained:
    assert isinstance(dataset, DatasetVersion)
    return Trained(use_case=use_case, dataset=f"{dataset.name}@{dataset.revision}", run_id=run_id, outcome=outcome)
