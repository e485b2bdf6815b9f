"""What a run's workers write, kept where Dagster shows it: on the page of the run, at each step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.resources.dagster_private import DagsterPrivateError
from trainworthy.resources.settings import read_settings
from trainworthy.resources.worker_output import Descriptors

try:
    from trainworthy.resources.dagster_private import CapturedLogContext, ComputeIOType, LocalComputeLogManager
except DagsterPrivateError as error:
    raise click.ClickException(str(error)) from None

if TYPE_CHECKING:
    from trainworthy.resources.dagster_private import ConfigurableClassData


class WorkerLogs(LocalComputeLogManager):
    """Dagster's files of captured output at <state folder>/dagster/output; named in dagster.yaml.

    Dagster's own process writes to the terminal alone.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data=inst_data)
        self._log_key: Sequence[str] | None = None

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> WorkerLogs:
        return cls(str(StateFolder(read_settings().var).folder("dagster", "output")), inst_data)

    @contextlib.contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
        """Around the steps of a run."""
        self._log_key = log_key
        try:
            yield CapturedLogContext(log_key)
        finally:
            for file in self.worker_files() or ():
                os.close(file)
            self._log_key = None
            with open(self.complete_artifact_path(log_key), "w"):
                pass

    def worker_files(self) -> Descriptors | None:
        """Descriptors of the run's files for stdout and stderr, for the caller to close; None between runs."""
        if self._log_key is None:
            return None
        out, error = (self._file(self._log_key, kind) for kind in (ComputeIOType.STDOUT, ComputeIOType.STDERR))
        return out, error

    def _file(self, log_key: Sequence[str], kind: ComputeIOType) -> int:
        with self.open_log_stream(log_key, kind) as stream:
            assert stream is not None
            return os.dup(stream.fileno())
