"""The contract as every step after the snapshot has it."""

from __future__ import annotations

from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.snapshot_contract import contract_of
from trainworthy.lifecycle.protocol.records import Snapshot


def judged_contract(run: StepRun) -> Contract:
    """The contract that this run's snapshot was judged by, whatever contract.yaml says by now. Raises RecordError."""
    return contract_of(run.workspace.state, run.record("snapshot", Snapshot), run.use_case.contract_path)
