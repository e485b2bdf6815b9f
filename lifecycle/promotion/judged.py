"""Which published dataset versions a use case was judged on, and which wait for their verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import cast

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.files.versions import published_version, read_versions
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.records import DatasetVersion, Verdict
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.use_case import DatasetSpec
from trainworthy.lifecycle.storage.records import RecordStore
from trainworthy.lifecycle.use_case import UseCase

NOTHING_NEWER = "publish the next version: trainworthy datasets publish --help"


class Standing(Frozen):
    """Where a use case stands.

    `champion` is the version of the model in the registry and `trained_on` its data; `newest_judged` is the newest
    version of the use case's dataset that has a verdict, `waiting` the ones published after it, in their order.
    """

    champion: str | None
    trained_on: DatasetSpec | None
    newest_judged: str | None
    waiting: tuple[str, ...]


def standing(use_case: UseCase, entries: tuple[LogEntry, ...], store: RecordStore) -> Standing:
    """Champion and waiting versions by the verdict log's `entries`.

    Raises RecordError for an entry without its records, DatasetError for an unpublished declared version.
    """
    declared, entry = use_case.spec.dataset, log.champion(entries)
    published_version(use_case.project, declared.name, declared.version)
    published = tuple(read_versions(use_case.project)[declared.name])
    data = [judged_dataset(entry, store) for entry in entries]
    judged = [dataset.version for dataset in data if dataset.name == declared.name]
    return Standing(
        champion=entry.model_version if entry else None,
        trained_on=judged_dataset(entry, store) if entry else None,
        newest_judged=newest(published, judged),
        waiting=waiting(published, judged, declared.version),
    )


def judged_dataset(entry: LogEntry, store: RecordStore) -> DatasetSpec:
    """The dataset version that an entry's verdict is about, by the verdict's own lineage."""
    verdict = store.get(entry.use_case, "promotion", entry.verdict_sha256)
    dataset = cast(DatasetVersion, store.get(entry.use_case, "dataset", verdict.parents["dataset"]))
    return DatasetSpec(name=dataset.name, version=dataset.revision)


def artifacts_of(entries: Sequence[LogEntry], store: RecordStore) -> dict[str, str]:
    """The sha256 of each version's artifact, by what its verdict binds; a version whose record is gone is left out."""
    artifacts: dict[str, str] = {}
    for entry in entries:
        with suppress(RecordError):
            bound = cast(Verdict, store.get(entry.use_case, "promotion", entry.verdict_sha256)).binds
            if "model" in bound:
                artifacts[entry.model_version] = bound["model"]
    return artifacts


def newest(published: Sequence[str], judged: Collection[str]) -> str | None:
    """The newest judged version in the order of publication, whichever was judged last; None without one."""
    return next((version for version in reversed(published) if version in judged), None)


def waiting(published: Sequence[str], judged: Collection[str], declared: str) -> tuple[str, ...]:
    """Versions published after the newest judged one; before any verdict the declared one and those after it."""
    newest_judged = newest(published, judged)
    start = published.index(declared) if newest_judged is None else published.index(newest_judged) + 1
    return tuple(published[start:])
