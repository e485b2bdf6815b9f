"""Records that an earlier form wrote load, keep the sha256 of their bytes, and are found by what names them."""

import hashlib
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError
from verdict_logs import log_in

from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.records import FORM, PARENTS, STEPS, Body, Record, StageReport, part_of, record_of
from trainworthy.lifecycle.storage.records import StateRecords, record_bytes, record_sha256
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.upstream import parent_hashes, upstream_records

GOLDEN = Path(__file__).parent / "golden_records"
(RUN_ID,) = (path.name for path in (GOLDEN / "records" / "toy" / "runs").iterdir())


@pytest.fixture
def store(tmp_path) -> StateRecords:
    shutil.copytree(GOLDEN / "records", tmp_path / "records")
    return StateRecords(FolderState(tmp_path))


@pytest.mark.parametrize("step", STEPS)
def test_golden_record_loads_and_its_sha256_is_that_of_its_bytes(store, step):
    record = store.of_run("toy", step, RUN_ID)
    content = (GOLDEN / "records" / "toy" / "objects" / f"{record_sha256(record)}.json").read_bytes()
    assert record_sha256(record) == hashlib.sha256(content).hexdigest()
    assert record_bytes(record) == content


def test_golden_form_differs_from_the_one_of_today(store):
    """Else the tests beside this one would hold whatever the store does."""
    records = [store.of_run("toy", step, RUN_ID) for step in STEPS]
    assert any(canonical_json(record.model_dump(mode="json")) != record_bytes(record) for record in records)


def test_golden_records_are_of_the_first_form(store):
    assert {store.of_run("toy", step, RUN_ID).form for step in STEPS} == {1}
    assert FORM > 1


def test_golden_records_are_each_others_parents(store):
    for step in STEPS:
        record = store.of_run("toy", step, RUN_ID)
        upstream = upstream_records(store, "toy", step, "another")
        assert set(upstream) == set(PARENTS[step])
        assert record.parents == parent_hashes(upstream)


@pytest.mark.parametrize("step", STEPS)
def test_golden_record_is_found_by_identity_and_reused_as_it_is(store, tmp_path, step):
    made = store.of_run("toy", step, RUN_ID)
    found = store.by_identity("toy", step, made.identity)
    store.reuse(found, "later")
    assert store.of_run("toy", step, "later") == store.newest("toy", step) == made
    assert (tmp_path / "records/toy/runs/later" / step).read_text() == record_sha256(made)
    assert store.put(found, "again") == record_sha256(made)
    assert len(list((tmp_path / "records" / "toy" / "objects").iterdir())) == len(STEPS)


def test_golden_verdict_is_the_one_that_its_log_names(store):
    (entry,) = log.read(log_in(GOLDEN))
    assert entry.verdict_sha256 == record_sha256(store.newest("toy", "promotion"))


def test_golden_record_that_is_changed_gets_a_sha256_of_its_own(store):
    record = store.of_run("toy", "snapshot", RUN_ID)
    changed = record.model_copy(update={"rows": record.rows + 1})
    assert record_sha256(changed) != record_sha256(record)
    assert record_sha256(changed.model_copy(update={"rows": record.rows})) == record_sha256(record)


def test_golden_record_equals_the_same_record_that_was_never_stored(store):
    record = store.of_run("toy", "dataset", RUN_ID)
    made = type(record).model_validate(record.model_dump())
    assert record == made
    assert made == record
    assert record != record.model_copy(update={"rows": 0})


@pytest.mark.parametrize("step", STEPS)
def test_golden_record_is_a_head_and_a_body_and_no_other_record_has_that_body(store, step):
    record = store.of_run("toy", step, RUN_ID)
    form = next(base for base in type(record).__mro__ if issubclass(base, Body) and not issubclass(base, Record))
    head, body = part_of(record, Record), part_of(record, form)
    assert record_of(head, body) == record
    other = "dataset" if step != "dataset" else "snapshot"
    with pytest.raises(ValidationError):
        record_of(head.model_copy(update={"kind": other}), body)


def test_golden_seeds_keep_their_auc(store):
    pilot = store.of_run("toy", "pilot", RUN_ID)
    assert isinstance(pilot, StageReport)
    assert len(pilot.trained) == 3
    assert all(one.val_auc is not None and 0.8 < one.val_auc < 1 for one in pilot.trained)
    assert [one.scored for one in pilot.trained] == [one.val_auc for one in pilot.trained]
