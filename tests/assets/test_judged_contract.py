"""Every step after the snapshot goes by the contract that judged it, whatever contract.yaml says by then."""

import ast
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainworthy.assets import evidence, snapshot, training_job
from trainworthy.assets.contract import judged_contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.snapshot_contract import contract_is_kept, contract_of, keep_contract
from trainworthy.lifecycle.errors import RecordError, UseCaseError
from trainworthy.lifecycle.lineage import identity_of
from trainworthy.lifecycle.protocol.records import DatasetVersion, Snapshot
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase, load_use_case

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "toy" / "use_cases" / "toy"
GOLDEN = ROOT / "tests" / "lifecycle" / "golden_records"
CONTRACTS = (TOY / "contract.yaml", *sorted(ROOT.glob("use_cases/*/contract.yaml")))


@pytest.fixture
def toy(tmp_path) -> UseCase:
    shutil.copytree(TOY, tmp_path / "use_cases" / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    return load_use_case(tmp_path / "use_cases" / "toy")


@pytest.fixture
def state(tmp_path) -> StateFolder:
    return StateFolder(tmp_path / "var")


def edit(toy: UseCase) -> None:
    """Declare the column day sensitive: no job may name its values then."""
    before = load_contract(toy.contract_path).sha256
    text = toy.contract_path.read_text()
    toy.contract_path.write_text(text.replace("value: other}]", "value: other}, {property: sensitive, value: true}]"))
    assert load_contract(toy.contract_path).sha256 != before


def golden() -> Snapshot:
    """A snapshot of before contracts were kept."""
    store, (run_id,) = StateRecords(FolderState(GOLDEN)), (GOLDEN / "records" / "toy" / "runs").iterdir()
    record = store.of_run("toy", "snapshot", run_id.name)
    assert isinstance(record, Snapshot)
    return record


def judged(state: StateFolder, toy: UseCase, *, kept: bool = True) -> Snapshot:
    """The snapshot's record, without its rows, as the contract of now makes it."""
    contract = load_contract(toy.contract_path)
    now = {"contract_sha256": contract.sha256, "contract": keep_contract(state, toy.name, contract) if kept else None}
    return golden().model_copy(update=now)


def run_of(state: StateFolder, toy: UseCase, record: Snapshot) -> SimpleNamespace:
    return SimpleNamespace(
        workspace=SimpleNamespace(state=state), use_case=toy, run_id="r1", record=lambda step, kind: record
    )


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.parent.name)
def test_kept_contract_is_the_one_that_was_compiled(state, path):
    contract = load_contract(path)
    file = keep_contract(state, "toy", contract)
    record = golden().model_copy(update={"contract": file, "contract_sha256": contract.sha256})
    found = contract_of(state, record, Path("no longer there"))
    assert (found, found.sha256, found.label_sha256) == (contract, contract.sha256, contract.label_sha256)
    assert keep_contract(state, "toy", contract) == file
    assert [one.name for one in state.folder("contracts", "toy").iterdir()] == [f"{file.sha256}.json"]


def test_contract_that_is_edited_after_the_snapshot_changes_no_later_step(state, toy, monkeypatch):
    monkeypatch.setattr(training_job, "snapshot_is_whole", lambda state, splits: True)
    record = judged(state, toy)
    run = run_of(state, toy, record)

    def asked():
        job = training_job.job_base(run, run.record("snapshot", Snapshot), Path("out"))  # pyright: ignore[reportArgumentType]
        tags = evidence.benchmark_tags(run)  # pyright: ignore[reportArgumentType]
        accepted = evidence.accepted_inputs(run)  # pyright: ignore[reportArgumentType]
        return job["rows"], training_job.job_kind(run), tags, accepted  # pyright: ignore[reportArgumentType]

    before = asked()
    assert before[0].sensitive == ()
    edit(toy)
    assert asked() == before
    run.record = lambda step, kind: judged(state, toy)
    assert asked()[0].sensitive == ("day",)
    toy.contract_path.write_text("no contract any more")
    run.record = lambda step, kind: record
    assert asked() == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_kept_contract_that_was_lost_or_changed_is_refused_and_the_snapshot_made_again(state, toy, damage, monkeypatch):
    monkeypatch.setattr(snapshot, "snapshot_is_whole", lambda state, splits: True)
    record = judged(state, toy)
    run = run_of(state, toy, record)
    assert snapshot.snapshot_stays(run, record)  # pyright: ignore[reportArgumentType]
    assert record.contract is not None
    damage(state.absolute(record.contract.path))
    assert not contract_is_kept(state, record.contract)
    assert not snapshot.snapshot_stays(run, record)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RecordError, match=r"missing or was changed(.|\n)*materialize toy/snapshot again"):
        judged_contract(run)  # pyright: ignore[reportArgumentType]
    assert judged(state, toy) == record
    assert contract_is_kept(state, record.contract)


def test_snapshot_of_before_contracts_were_kept_goes_by_an_unchanged_contract_yaml_alone(state, toy):
    record = judged(state, toy, kept=False)
    run = run_of(state, toy, record)
    assert judged_contract(run) == load_contract(toy.contract_path)  # pyright: ignore[reportArgumentType]
    edit(toy)
    with pytest.raises(RecordError, match="missing or was changed"):
        judged_contract(run)  # pyright: ignore[reportArgumentType]


def test_contract_that_is_edited_while_the_snapshot_begins_is_refused(toy):
    dataset = DatasetVersion.model_construct(identity="d1")
    upstream = {"dataset": dataset}
    identity = identity_of(toy, "snapshot", "c", upstream, {})  # pyright: ignore[reportArgumentType]
    run = SimpleNamespace(use_case=toy, step="snapshot", code_sha256="c", upstream=upstream, identity=identity)
    assert snapshot.declared_contract(run) == load_contract(toy.contract_path)  # pyright: ignore[reportArgumentType]
    edit(toy)
    with pytest.raises(UseCaseError, match="was edited while the snapshot step began"):
        snapshot.declared_contract(run)  # pyright: ignore[reportArgumentType]


def test_contract_yaml_is_read_by_the_snapshot_and_by_freshness_alone():
    """A step after the snapshot that read it again could go by other rules than the rows were judged by."""
    readers = {
        path.stem
        for path in (ROOT / "assets").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "trainworthy.lifecycle.contract.read"
    }
    assert readers == {"snapshot", "freshness"}
