"""The contract that judged a snapshot, kept in the state folder beside its record.

Whatever comes after the snapshot goes by this one: a contract.yaml that is edited while a run goes on decides the next
run, and not half of this one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.records import Snapshot, StoredFile
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic


def keep_contract(state: StateFolder, use_case: str, contract: Contract) -> StoredFile:
    """Write the contract, with its compiled rules, to contracts/<use case>/<sha256 of the file>.json."""
    content = canonical_json(contract.model_dump(mode="json"))
    sha256 = hashlib.sha256(content).hexdigest()
    path = state.folder("contracts", use_case, f"{sha256}.json")
    file = StoredFile(path=state.relative(path), sha256=sha256, bytes=len(content))
    if not contract_is_kept(state, file):
        write_atomic(path, content)
    return file


def contract_is_kept(state: StateFolder, file: StoredFile) -> bool:
    """True if the file still has the bytes that were written."""
    return _content(state, file) is not None


def contract_of(state: StateFolder, snapshot: Snapshot, declared: Path) -> Contract:
    """The contract that judged the snapshot's rows. Raises RecordError if it is not there any more.

    A snapshot of before contracts were kept has that of the file `declared`, as long as it has the hash on record.
    """
    contract = load_contract(declared) if snapshot.contract is None else _read(state, snapshot.contract)
    if contract is None or contract.sha256 != snapshot.contract_sha256:
        fix = f"materialize {snapshot.use_case}/snapshot again, or run the whole job"
        value = snapshot.contract_sha256[:12]
        raise RecordError("the contract that judged the snapshot is missing or was changed", value=value, fix=fix)
    return contract


def _read(state: StateFolder, file: StoredFile) -> Contract | None:
    content = _content(state, file)
    try:
        return None if content is None else Contract.model_validate_json(content)
    except ValidationError:
        return None


def _content(state: StateFolder, file: StoredFile) -> bytes | None:
    """The file's bytes; None unless they are those that were written."""
    try:
        content = state.absolute(file.path).read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == file.sha256 else None
