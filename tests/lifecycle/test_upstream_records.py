import pytest
from refusals import refused
from test_record_store import PROVENANCE, common, dataset

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import PreflightReport, Snapshot, StoppedStep
from trainworthy.lifecycle.storage.records import StateRecords, record_sha256
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.upstream import parent_hashes, upstream_records


@pytest.fixture
def store(tmp_path):
    return StateRecords(FolderState(tmp_path / "var"))


def snapshot(parent, identity="s1") -> Snapshot:
    return Snapshot(
        **common("snapshot", identity, {"dataset": record_sha256(parent)}, ()), content_hash="y", contract_sha256="c",
        label_sha256="l", label="positive", feature_columns=("x1",), rows=1, excluded_rows=0, excluded_share=0.0,
        benchmark="b", splits={},
    )  # fmt: skip


def preflight(parent, identity="p1", checks=()) -> PreflightReport:
    return PreflightReport(
        **common("preflight", identity, {"snapshot": record_sha256(parent)}, checks),
        memory_bytes=None, seconds=None, cost_usd=None,
    )  # fmt: skip


def test_upstream_of_a_run_is_its_own_even_if_another_run_is_newer(store):
    first, second = dataset("d1"), dataset("d2")
    store.put(first, "r1")
    store.put(second, "r2")
    assert upstream_records(store, "toy", "snapshot", "r1") == {"dataset": first}
    assert upstream_records(store, "toy", "snapshot", "alone") == {"dataset": second}
    assert parent_hashes({"dataset": first}) == {"dataset": record_sha256(first)}


def test_upstream_that_is_missing_is_refused(store):
    with refused(RecordError, "upstream.missing") as caught:
        upstream_records(store, "toy", "snapshot", "r1")
    assert "toy/dataset" in caught.value.fix


def test_upstream_that_failed_in_the_run_is_refused_although_an_older_one_passed(store):
    store.put(dataset("good"), "r1")
    store.put(dataset("bad", status="fail"), "r2")
    with refused(RecordError, "upstream.missing"):
        upstream_records(store, "toy", "snapshot", "r2")


def test_upstream_that_stopped_without_a_result_is_refused(store):
    store.put(StoppedStep(**common("dataset", "d1", {}, ()), error="no bytes"), "r1")
    with refused(RecordError, "upstream.missing"):
        upstream_records(store, "toy", "snapshot", "r1")


def test_upstream_with_a_required_check_unmeasured_is_refused(store):
    data = dataset()
    snap = snapshot(data)
    unmeasured = CheckResult(name="memory_forecast", status="insufficient", required=True)
    for record in (data, snap, preflight(snap, checks=(unmeasured,))):
        store.put(record, "r1")
    with refused(RecordError, "upstream.missing") as caught:
        upstream_records(store, "toy", "smoke", "r1")
    assert "toy/preflight" in caught.value.fix


def test_upstream_records_that_do_not_belong_together_are_refused(store):
    old, new = dataset("d1"), dataset("d2")
    snapshot_old, snapshot_new = snapshot(old, "s1"), snapshot(new, "s2")
    for record in (old, new, snapshot_old, snapshot_new, preflight(snapshot_old)):
        store.put(record, "r1" if record is not snapshot_new else "r2")
    with refused(RecordError, "upstream.stale") as caught:
        upstream_records(store, "toy", "smoke", "alone")
    assert "toy/preflight" in caught.value.fix


def test_provenance_of_a_record_is_kept(store):
    store.put(dataset(), "r1")
    assert store.newest("toy", "dataset").provenance == PROVENANCE
