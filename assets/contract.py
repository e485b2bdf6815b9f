"""The contract as every step after the snapshot has it."""

from __future__ import annotations

from assets.step_run import StepRun
from lifecycle.contract.kept import contract_of
from lifecycle.contract.model import Contract
from lifecycle.protocol.records import Snapshot


def judged_contract(run: StepRun) -> Contract:
    """The contract that this run's snapshot was judged by, whatever contract.yaml says by now. Raises RecordError."""
    return contract_of(run.workspace.state, run.record("snapshot", Snapshot), run.use_case.contract_path)
