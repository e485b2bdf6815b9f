import json

import pytest
from refusals import refused

from trainworthy.lifecycle.errors import RecordError, SettingsError
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import (
    FORM,
    Cost,
    DatasetVersion,
    PreflightReport,
    Provenance,
    Record,
    StoppedStep,
)
from trainworthy.lifecycle.storage.records import StateRecords, record_sha256
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic

PROVENANCE = Provenance(
    git_commit=None, git_dirty=None, code_sha256="c", environment_sha256="e", run_id="r1", created_at="2024-01-01"
)


def common(kind: str, identity: str, parents: dict[str, str], checks: tuple[CheckResult, ...]) -> dict:
    return {
        "kind": kind, "use_case": "toy", "parents": parents, "identity": identity, "provenance": PROVENANCE,
        "cost": Cost(wall_seconds=0.1, usd=0.3), "checks": checks,
    }  # fmt: skip


def dataset(identity: str = "d1", *, status: str = "pass") -> DatasetVersion:
    checks = (CheckResult(name="content_hash", status=status),)  # pyright: ignore[reportArgumentType]
    return DatasetVersion(
        **common("dataset", identity, {}, checks), name="toy", revision="v1", dvc_hash="x", content_hash="y", rows=3,
        path="datasets/y", files=(),
    )  # fmt: skip


@pytest.fixture
def state(tmp_path):
    return StateFolder(tmp_path / "var")


@pytest.fixture
def store(state):
    return StateRecords(FolderState(state.root))


def test_record_comes_back_equal(store):
    sha256 = store.put(dataset(), "r1")
    assert sha256 == record_sha256(dataset())
    assert store.get("toy", "dataset", sha256) == dataset()


def test_pointers_lead_to_the_record_by_run_newest_and_identity(store):
    first, second = dataset("d1"), dataset("d2")
    store.put(first, "r1")
    store.put(second, "r2")
    assert store.of_run("toy", "dataset", "r1") == first
    assert store.newest("toy", "dataset") == second
    assert store.by_identity("toy", "dataset", "d1") == first
    store.reuse(first, "r3")
    assert store.of_run("toy", "dataset", "r3") == first
    assert store.newest("toy", "dataset") == first


def test_pointers_of_what_was_never_made_lead_nowhere(store):
    assert store.of_run("toy", "dataset", "r1") is None
    assert store.newest("toy", "dataset") is None
    assert store.by_identity("toy", "dataset", "d1") is None


def test_failed_record_belongs_to_its_run_only(store):
    store.put(dataset("good"), "r1")
    store.put(dataset("bad", status="fail"), "r2")
    assert store.of_run("toy", "dataset", "r2").identity == "bad"
    assert store.newest("toy", "dataset").identity == "good"
    assert store.by_identity("toy", "dataset", "bad") is None


def test_stopped_step_comes_back_and_never_passes(store):
    stopped = StoppedStep(**common("preflight", "p1", {}, ()), error="no rows")
    store.put(stopped, "r1")
    found = store.of_run("toy", "preflight", "r1")
    assert found == stopped
    assert not found.passed
    assert store.newest("toy", "preflight") is None
    assert store.by_identity("toy", "preflight", "p1") is None


def object_path(state, sha256):
    return state.root / "records" / "toy" / "objects" / f"{sha256}.json"


def test_changed_record_is_refused(store, state):
    sha256 = store.put(dataset(), "r1")
    path = object_path(state, sha256)
    path.write_bytes(path.read_bytes().replace(b'"rows":3', b'"rows":4'))
    with refused(RecordError, "record.changed"):
        store.get("toy", "dataset", sha256)
    with refused(RecordError, "record.changed"):
        store.newest("toy", "dataset")
    assert store.by_identity("toy", "dataset", "d1") is None


def test_missing_record_is_refused(store, state):
    sha256 = store.put(dataset(), "r1")
    object_path(state, sha256).unlink()
    with refused(RecordError, "record.missing"):
        store.newest("toy", "dataset")


def test_pointer_to_a_record_of_another_step_is_refused(store, state):
    report = PreflightReport(**common("preflight", "p1", {}, ()), memory_bytes=None, seconds=None, cost_usd=None)
    stopped = StoppedStep(**common("preflight", "p1", {}, ()), error="no rows")
    for record, code in ((report, "record.other_form"), (stopped, "record.other_step")):
        with refused(RecordError, code):
            store.get("toy", "dataset", store.put(record, "r1"))


def test_record_of_an_older_form_is_refused_and_not_reused(store, state):
    values = json.loads(dataset().model_dump_json())
    del values["rows"]
    older = Record.model_construct(**values)
    content = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    import hashlib

    sha256 = hashlib.sha256(content).hexdigest()
    write_atomic(object_path(state, sha256), content)
    write_atomic(state.root / "records/toy/identity/dataset/d1", sha256.encode())
    assert older.identity == "d1"
    assert store.by_identity("toy", "dataset", "d1") is None
    with refused(RecordError, "record.other_form"):
        store.get("toy", "dataset", sha256)


def test_record_of_a_newer_form_is_refused_with_what_to_do(store):
    newer = dataset().model_copy(update={"form": FORM + 1})
    with refused(RecordError, "record.newer_form") as caught:
        store.get("toy", "dataset", store.put(newer, "r1"))
    assert f"form {FORM + 1}, known up to {FORM}" in caught.value.problem


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", ".hidden", "a b", "a\n", "a\0", "ü"])
def test_name_that_would_leave_the_state_folder_is_refused(state, name):
    with refused(SettingsError, "state.name"):
        state.folder("records", name)


def test_path_that_a_record_names_outside_the_state_folder_is_refused(state, tmp_path):
    state.root.mkdir()
    (state.root / "link").symlink_to(tmp_path)
    assert state.absolute("snapshots/x.parquet") == state.root / "snapshots" / "x.parquet"
    for path in ("../secret", "/etc/passwd", "link/secret"):
        with refused(SettingsError, "state.path"):
            state.absolute(path)


def test_state_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "var").write_text("")
    with refused(SettingsError, "state.unwritable"):
        StateFolder(tmp_path / "var").check_writable()


def test_failed_write_leaves_the_old_content_and_nothing_half_written(tmp_path, monkeypatch):
    path = tmp_path / "pointer"
    write_atomic(path, b"old")

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["pointer"]
