from typing import Any

import pytest
import toy_jobs
from test_record_store import dataset
from test_upstream_records import snapshot

from trainworthy.lifecycle.code_identity import step_code_sha256
from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.lineage import declared_sections, identity_of, refuse_outdated, training_run_id
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.storage.records import StateRecords, record_sha256
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.use_case import UseCase

STAGE_STEPS = {"preflight", "smoke", "pilot", "full"}


def use_case(**sections: Any) -> UseCase:
    return UseCase(spec=toy_jobs.spec_with(**sections), folder=toy_jobs.TOY)


def changed_steps(**sections: Any) -> set[str]:
    """Steps whose declared sections differ from the unchanged toy's."""
    changed, plain = use_case(**sections), use_case()
    return {step for step in STEPS if declared_sections(changed, step) != declared_sections(plain, step)}


@pytest.mark.parametrize(
    "sections",
    [
        {"owner": "team:others"},
        {"description": "Other words."},
        {"compute": {"device": "auto", "gpus": 1, "sku": "other"}},
        {"training": {"checkpoint_every_steps": 3}},
        {"benchmark": {"slice_rows": 200}},
    ],
)
def test_section_that_changes_no_result_changes_no_step(sections):
    assert changed_steps(**sections) == set()


def test_nodes_that_share_out_the_processes_change_no_step():
    compute = {"launcher": "torchrun", "processes": 4}
    several = changed_steps(compute={**compute, "nodes": 2})
    assert several == changed_steps(compute=compute)


def test_fewer_nodes_that_go_on_change_what_is_forecast_and_no_training():
    compute = {"launcher": "ray", "processes": 4, "nodes": 4}
    all_of_them, fewer = (use_case(compute={**compute, **more}) for more in ({}, {"least_nodes": 2}))
    changed = {step for step in STEPS if declared_sections(fewer, step) != declared_sections(all_of_them, step)}
    assert changed == {"preflight"}
    assert changed_steps(compute={**compute, "least_nodes": 4}) == changed_steps(compute=compute)


@pytest.mark.parametrize(
    ("sections", "steps"),
    [
        ({"dataset": {"version": "v2"}}, {"dataset"}),
        ({"prediction_time": "day"}, {"snapshot"}),
        ({"target": "other"}, {"snapshot"}),
        ({"split": {"embargo": "2d"}}, {"snapshot"}),
        ({"hyperparameters": {"width": 33}}, STAGE_STEPS),
        ({"training": {"optimizer": {"learning_rate": 0.02}}}, STAGE_STEPS),
        ({"training": {"batch_size": 64}}, STAGE_STEPS),
        ({"training": {"seed": 8}}, STAGE_STEPS | {"evaluation"}),
        # Whether weights are declared at all is asked of the snapshot; `none` trains as before.
        ({"training": {"class_weights": "none"}}, {"snapshot"}),
        ({"training": {"class_weights": "balanced"}}, STAGE_STEPS | {"snapshot"}),
        ({"stages": {"pilot": 0.4}}, STAGE_STEPS),
        ({"compute": {"launcher": "torchrun", "processes": 2}}, {"preflight"}),
        ({"compute": {"launcher": "torchrun", "processes": 2, "sharding": "fsdp"}}, {"preflight"}),
        ({"benchmark": {"latency_ms": 40}}, {"evaluation", "promotion"}),
        ({"benchmark": {"slice_rows": 100}}, {"evaluation", "promotion"}),
        ({"promotion": {"purpose": "refresh"}}, {"promotion"}),
        ({"budget": {"run_usd": 0.4}}, {"promotion"}),
    ],
)
def test_section_that_changes_a_result_changes_its_own_steps_only(sections, steps):
    assert changed_steps(**sections) == steps


def identities(case: UseCase, code: str = "code") -> dict[str, str]:
    """Identity of the first steps, each from the one before, and the id of the training."""
    data = dataset(identity_of(case, "dataset", code, {}, {"content_hash": "h"}))
    snap = snapshot(data, identity_of(case, "snapshot", code, {"dataset": data}, {}))
    preflight = identity_of(case, "preflight", code, {"snapshot": snap}, {})
    run = training_run_id(case, code, snap)
    return {"dataset": data.identity, "snapshot": snap.identity, "preflight": preflight, "training_run": run}


def differing(first: dict[str, str], second: dict[str, str]) -> set[str]:
    return {name for name in first if first[name] != second[name]}


def test_identity_changes_for_the_step_and_all_after_it_and_none_before():
    plain = identities(use_case())
    assert differing(plain, identities(use_case())) == set()
    assert differing(plain, identities(use_case(owner="team:others"))) == set()
    assert differing(plain, identities(use_case(dataset={"version": "v2"}))) == set(plain)
    assert differing(plain, identities(use_case(split={"embargo": "2d"}))) == {"snapshot", "preflight", "training_run"}
    assert differing(plain, identities(use_case(hyperparameters={"width": 33}))) == {"preflight", "training_run"}


def test_identity_changes_with_the_code():
    plain = identities(use_case(), "code")
    assert differing(plain, identities(use_case(), "other code")) == set(plain)


def test_code_hash_sees_each_python_file_of_the_use_case_and_nothing_else(tmp_path):
    folder = toy_jobs.changed_use_case(tmp_path / "toy")
    plain = step_code_sha256(folder, "full")
    (folder / "notes.md").write_text("words")
    assert step_code_sha256(folder, "full") == plain == step_code_sha256(toy_jobs.TOY, "full")
    (folder / "model.py").write_text((folder / "model.py").read_text() + "\n")
    changed = step_code_sha256(folder, "full")
    (folder / "more.py").write_text("")
    assert len({plain, changed, step_code_sha256(folder, "full")}) == 3


def test_identity_changes_with_the_contract(tmp_path):
    folder = toy_jobs.changed_use_case(tmp_path / "toy")
    case = UseCase(spec=toy_jobs.SPEC, folder=folder)
    before = identities(case)
    contract = folder / "contract.yaml"
    contract.write_text(contract.read_text().replace("maximum: 10", "maximum: 11"))
    assert differing(before, identities(case)) == {"snapshot", "preflight", "training_run"}


def test_identity_stays_with_the_words_of_the_contract(tmp_path):
    folder = toy_jobs.changed_use_case(tmp_path / "toy")
    case = UseCase(spec=toy_jobs.SPEC, folder=folder)
    before, contract = identities(case), folder / "contract.yaml"
    contract.write_text("# a remark\n" + contract.read_text().replace("version: 1.0.0", "version: 1.0.1"))
    assert differing(before, identities(case)) == set()


def test_canonical_json_refuses_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"loss": float("nan")})


@pytest.fixture
def chain(tmp_path):
    """A store with a dataset and a snapshot made by the unchanged toy, and these records."""
    store = StateRecords(FolderState(tmp_path / "var"))
    case = use_case()
    data = dataset().model_copy(update={"name": "toy_rows", "revision": "v1"})
    snap = snapshot(data, identity_of(case, "snapshot", "code", {"dataset": data}, {}))
    assert snap.parents == {"dataset": record_sha256(data)}
    store.put(data, "r1")
    store.put(snap, "r1")
    return store, data, snap


def test_upstream_that_still_matches_is_accepted(chain):
    store, data, snap = chain
    refuse_outdated(use_case(owner="team:others"), lambda step: "code", {"dataset": data, "snapshot": snap}, store)


def test_upstream_of_another_dataset_version_is_refused(chain):
    store, data, _ = chain
    for case in (use_case(dataset={"version": "v2"}), use_case().at_version("v2")):
        with pytest.raises(
            RecordError, match="stale: it is toy_rows@v1, and this run works with toy_rows@v2"
        ) as caught:
            refuse_outdated(case, lambda step: "code", {"dataset": data}, store)
        assert '"dataset_version": "v1"' in caught.value.fix
    refuse_outdated(use_case(dataset={"version": "v2"}).at_version("v1"), lambda step: "code", {"dataset": data}, store)


def test_use_case_at_another_version_is_the_one_that_declares_it():
    declared = use_case(dataset={"version": "v2"})
    assert use_case().at_version("v2") == declared
    assert declared.at_version("") == declared
    assert identities(use_case().at_version("v2")) == identities(declared)


@pytest.mark.parametrize(("sections", "code"), [({"split": {"embargo": "2d"}}, "code"), ({}, "other code")])
def test_upstream_of_other_values_or_code_is_refused(chain, sections, code):
    store, _, snap = chain
    with pytest.raises(RecordError, match="newest snapshot is stale"):
        refuse_outdated(use_case(**sections), lambda step: code, {"snapshot": snap}, store)
