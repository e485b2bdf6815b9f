"""The stores as one Dagster resource: state folder, shared state with its records, prices."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

import dagster as dg
from pydantic import Field

from trainworthy.lifecycle.cost.prices import Prices, load_prices
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.metrics import share_metrics
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.files import fetch_files, keep_files
from trainworthy.lifecycle.storage.shared.store import HeldLease, StateStore, point
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.resources.settings import read_settings, require_durable
from trainworthy.resources.shared_state import refuse_own_registry, report_key, shared_state


class Workspace(dg.ConfigurableResource):
    """Where records and files lie. Everything comes from the settings."""

    @cached_property
    def state(self) -> StateFolder:
        return StateFolder(read_settings().var)

    @cached_property
    def shared(self) -> StateStore:
        """Where records and verdicts lie."""
        return shared_state(read_settings())

    @cached_property
    def records(self) -> StateRecords:
        return StateRecords(self.shared)

    @cached_property
    def leases(self) -> dict[str, HeldLease]:
        """The leases of verdict logs that this run holds, by use case."""
        return {}

    def keep_files(self, body: Frozen) -> None:
        """Have what a record names where other machines find it. Raises StateError."""
        if read_settings().shared is not None:
            keep_files(self.shared, self.state, body)

    def fetch_files(self, *bodies: Frozen) -> None:
        """Have here what records name and this machine lacks. Raises StateError for other bytes than they name."""
        if read_settings().shared is not None:
            for body in bodies:
                fetch_files(self.shared, self.state, body)

    def share_metrics(self, use_case: str) -> None:
        """Have the metrics of earlier versions here and there. Raises StateError."""
        if read_settings().shared is not None:
            share_metrics(self.shared, self.state, use_case)

    def keep_report(self, use_case: str, run_id: str, page: Path) -> None:
        """Have a run's report where other machines find it. Raises StateError."""
        if read_settings().shared is not None:
            point(self.shared, report_key(use_case, run_id), page.read_bytes())

    def require_shared(self) -> None:
        """Before the first write. Raises StateError unless several machines may write there; of the state folder one.
        Raises SettingsError where the registry is not shared as well.

        Asked once: a store keeps conditions or does not.
        """
        refuse_own_registry(read_settings())
        if read_settings().shared is not None:
            _ask_once(self.shared)

    @property
    def durable(self) -> str | None:
        """The storage that outlives this machine, as it is named."""
        return read_settings().durable

    def require_durable(self) -> str | None:
        """The same, looked for anew each time, since a volume may be unmounted. Raises SettingsError if it is gone."""
        return require_durable(read_settings())

    @cached_property
    def prices(self) -> Prices:
        return load_prices(read_settings().prices)


_asked: set[str] = set()


def _ask_once(store: StateStore) -> None:
    if store.where not in _asked:
        store.check()
        _asked.add(store.where)


class Intent(dg.ConfigurableResource):
    """What this run declares. The descriptions are what the UI's launchpad shows."""

    first_model: bool = Field(
        default=False,
        description="There is no champion yet, and that is known. Refused if there is one.",
    )
    fail_on: Literal["never", "reject", "shadow"] = Field(
        default="never",
        description="The run fails (exit code 1) if the verdict is `reject`; with `shadow` also if it is `shadow`.",
    )
    candidate: bool = Field(
        default=False,
        description="For runs without a job, as `Materialize all`: true meets the benchmark and ends in a verdict.",
    )
    dataset_version: str = Field(
        default="",
        description="The dataset version to use in this run, for example v10. Empty: the one in use_case.yaml.",
    )
