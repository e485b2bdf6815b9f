"""Checks of the configuration that need no worker: steps, stores, spot machines, room on the disk."""

from dataclasses import replace
from typing import Any

import pytest
import toy_jobs
from configured import free, host, subject, tried

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.configuration import disk_space
from trainworthy.lifecycle.engine.preflight.configuration.disk_space import (
    checkpoints,
    checkpoints_have_room,
    state_bytes,
)
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.check import CPU_ONLY, DECLARED, UNTRIED
from trainworthy.lifecycle.gates.declared import SHARED_VOLUME, file_system, is_writable
from trainworthy.lifecycle.gates.host import (
    before_worker,
    for_device,
    not_started,
    still_holds,
    stops,
    with_host,
)
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.storage.durable.place import takes_copies


def test_checks_that_run_the_network_or_augment_on_the_device_are_not_the_host_s():
    names = {"inputs.finite", "inputs.augmentation_varies", "inputs.augmentation_pairs"}
    names.add("configuration.optimizer_parameters")
    assert {check.id for check in CATALOGUE if check.id in names and check.on_device} == names


@pytest.mark.parametrize(
    ("seen", "status", "told"),
    [
        (host(), "pass", "6 epochs of 39"),
        (host(200, training={"batch_size": 32}), "pass", "6 epochs"),
        (host(training={"batch_size": 32, "accumulate": 4}), "pass", "32 rows × 4 accumulated = 128 rows"),
        (host(training={"batch_size": 1}), "pass", "5,000"),
        (host(stages={"mode": "continue"}), "pass", "6 epochs"),
        (host(100), "fail", "the training split has 100"),
        (host(training={"accumulate": 64}), "fail", "128 rows × 64 accumulated = 8,192 rows"),
        (host(300, training={"epochs": 1}), "insufficient", "training.epochs is 1"),
    ],
)
def test_steps_add_up_or_are_told(seen, status, told):
    trial = tried("steps", seen)
    assert trial.status == status, trial.evidence
    assert told in trial.evidence
    assert trial.device == "host"


def test_store_that_cannot_be_opened_stops_and_every_one_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    def refused() -> None:
        raise ConnectionError("no answer")

    stores = {
        "MLflow": refused, "records": lambda: is_writable(tmp_path / "file" / "records"),
        "snapshots": lambda: is_writable(tmp_path / "snapshots"),
    }  # fmt: skip
    trial = tried("stores_reachable", host(stores=stores))
    assert trial.status == "fail"
    assert "MLflow: ConnectionError: no answer" in trial.evidence
    assert "records: NotADirectoryError" in trial.evidence
    assert "snapshots" not in trial.evidence
    assert tried("stores_reachable", host()).status == "pass"


def test_store_that_cannot_be_opened_is_told_without_its_password():
    def refused() -> None:
        raise ConnectionError(f"{'x' * 150} http://me:s3cret@mlflow.local:5000/api?token=t0ken refused")

    trial = tried("stores_reachable", host(stores={"MLflow": refused}))
    assert "http://mlflow.local:5000/api" in trial.evidence
    assert not [secret for secret in ("me:", "s3cret", "t0ken") if secret in trial.evidence]


SPOT: dict[str, Any] = {"compute": {"spot": True}}


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (host(), "not_applicable"),
        (host(disk="nfs4", **SPOT), "pass"),
        (host(disk=SHARED_VOLUME, compute={"spot": True}), "pass"),
        # Named as what outlives the machine, and not to be told from its own disk; not named at all.
        (host(disk="ext4", durable="/volume", **SPOT), "insufficient"),
        (host(disk="nfs4", durable="/volume", **SPOT), "pass"),
        (host(disk="s3", durable="s3://models/a", **SPOT), "pass"),
        (host(disk="ext4", **SPOT), "fail"),
        (host(disk="overlay", **SPOT), "fail"),
        # A store so slow that a copy is 20 minutes on its way, however often one begins; and one that may be.
        (host(disk="nfs4", write=1200.0, training={"checkpoint_every_steps": None}, **SPOT), "fail"),
        (
            host(disk="nfs4", write=1200.0, others_busy=1.9, training={"checkpoint_every_steps": None}, **SPOT),
            "insufficient",
        ),
        (host(disk="overlay", others_busy=1.9, **SPOT), "fail"),
        (host(disk="nfs4", write=300.0, training={"checkpoint_every_steps": None}, **SPOT), "insufficient"),
        (host(disk="nfs4", write=200.0, training={"checkpoint_every_steps": None}, **SPOT), "pass"),
        # Fourteen minutes of updates and two of writing.
        (host(disk="nfs4", seconds=11_558, write=120.0, **SPOT), "fail"),
        (host(disk="nfs4", seconds=None, **SPOT), "insufficient"),
        # 234 updates of full and 110 of the stages before it: ten hours, and a checkpoint every 25 steps.
        (host(disk="nfs4", seconds=36_000, **SPOT), "fail"),
        (host(disk="nfs4", seconds=36_000, training={"checkpoint_every_steps": 1}, **SPOT), "pass"),
        (host(disk="nfs4", seconds=9_000, **SPOT), "insufficient"),
        # Three trainings of full: 812 updates of 105 s, and a checkpoint every 14 minutes, not every 33.
        (
            host(disk="nfs4", seconds=84_977, training={"checkpoint_every_steps": 8, "full_seeds": 3}, **SPOT),
            "insufficient",
        ),
        # As often as pays: the bound is kept, unless a single update takes longer.
        (host(disk="nfs4", seconds=36_000, training={"checkpoint_every_steps": None}, **SPOT), "pass"),
        (host(disk="nfs4", seconds=400_000, training={"checkpoint_every_steps": None}, **SPOT), "fail"),
    ],
)
def test_spot_machine_needs_checkpoints_that_survive_it(seen, status):
    trial = tried("spot_checkpoints", seen)
    assert trial.status == status, trial.evidence


def test_file_system_of_a_folder_is_named(tmp_path):
    assert file_system(tmp_path / "not" / "there")
    assert file_system(tmp_path) != "unknown"


def test_room_counts_weights_moments_and_checkpoints(splits, tmp_path):
    made = subject()
    weights, moments = state_bytes(made)
    assert weights == 33 * 4
    # AdamW: two moments of each weight, and a step count for each of four tensors.
    assert moments == 2 * weights + 4 * 4
    job = toy_jobs.preflight_job(splits, tmp_path)
    # Every 25 steps: smoke's last, two of pilot and full, and one that is being written; else the last of each.
    assert checkpoints(job, 5000, 2500) == 6
    rare = job.model_copy(update={"training": job.training.model_copy(update={"checkpoint_every_steps": 1000})})
    assert checkpoints(rare, 5000, 2500) == 4
    # As often as pays: the two that are kept of each stage.
    often = job.model_copy(update={"training": job.training.model_copy(update={"checkpoint_every_steps": None})})
    assert checkpoints(often, 5000, 2500) == 7


def seen_with(splits, tmp_path, durable=None):
    job = toy_jobs.preflight_job(splits, tmp_path, durable=durable and str(durable))
    return job, draw_sample(job, read_rows(job.training_file, job.rows), "cpu")


def test_room_is_asked_twice_over_where_the_checkpoints_lie(splits, tmp_path, monkeypatch):
    seen = seen_with(splits, tmp_path)
    weights, beside = state_bytes(seen[1].subject)
    needed = 6 * (weights + beside) + 3 * weights
    for size, status in ((2 * needed, "pass"), (2 * needed - 1, "fail"), (0, "insufficient")):
        free(monkeypatch, {tmp_path: size})
        found = checkpoints_have_room(seen)
        assert found.status == status, found.evidence
        assert "6 checkpoints" in found.evidence


@pytest.mark.parametrize("same_disk", [True, False])
def test_room_is_asked_of_the_folder_for_copies_as_well(splits, tmp_path, monkeypatch, same_disk):
    durable = tmp_path / "durable"
    durable.mkdir()
    seen = seen_with(splits, tmp_path, durable)
    weights, beside = state_bytes(seen[1].subject)
    copies, own = 6 * (weights + beside), 6 * (weights + beside) + 3 * weights
    monkeypatch.setattr(disk_space, "same_disk", lambda *folders: same_disk)
    if same_disk:
        free(monkeypatch, {tmp_path: 2 * (own + copies) - 1})
        assert "name a larger disk in TRAINWORTHY_VAR" in checkpoints_have_room(seen).fix
        free(monkeypatch, {tmp_path: 2 * (own + copies)})
    else:
        free(monkeypatch, {tmp_path: 2 * own, durable: 2 * copies - 1})
        found = checkpoints_have_room(seen)
        assert (found.status, found.threshold) == ("fail", 2 * copies)
        assert "TRAINWORTHY_DURABLE" in found.fix
        free(monkeypatch, {tmp_path: 2 * own, durable: 2 * copies})
    assert checkpoints_have_room(seen).status == "pass"


def test_room_is_asked_of_no_bucket(splits, tmp_path, monkeypatch):
    seen = seen_with(splits, tmp_path, "s3://models/a")
    weights, beside = state_bytes(seen[1].subject)
    free(monkeypatch, {tmp_path: 10**12})
    assert checkpoints_have_room(seen).threshold == 2 * (6 * (weights + beside) + 3 * weights)


def test_rows_on_the_disk_are_a_part_of_the_room_that_is_asked(splits, tmp_path, monkeypatch):
    job, ahead = seen_with(splits, tmp_path)
    training = job.training.model_copy(update={"tensors": "per_batch"})
    loaded = job.model_copy(update={"training": training, "processes": 2})
    rows = read_rows(job.training_file, job.rows)
    mapped, needed = rows.memory_usage(index=False).sum(), []
    for one in (job, loaded):
        free(monkeypatch, {tmp_path: 10**12})
        needed.append(checkpoints_have_room((one, ahead)).threshold)
    assert needed[1] - needed[0] == pytest.approx(2 * 2 * mapped, rel=0.02)


def test_folder_for_copies_that_is_not_there_or_takes_no_files_is_a_store_that_fails(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "unmounted", tmp_path / "file"):
        seen = host(stores={"copies of checkpoints": lambda folder=folder: takes_copies(str(folder))})
        trial = tried("stores_reachable", seen)
        assert trial.status == "fail"
        assert "name another one in TRAINWORTHY_DURABLE" in trial.evidence
        assert stops(before_worker(seen))
    assert not (tmp_path / "unmounted").exists()
    healthy = host(stores={"copies of checkpoints": lambda: takes_copies(str(tmp_path))})
    assert tried("stores_reachable", healthy).status == "pass"


def test_host_that_stops_leaves_the_worker_s_checks_untried_and_all_are_told():
    seen = host(100, preflight={"not_applicable": {"overfit.ten_batches": "a generative model"}})
    first = before_worker(seen)
    assert stops(first)
    result = not_started(first, seen)
    told = {trial.check: trial for trial in result.trials}
    for check in ("one_batch.train", "one_batch.validate"):
        assert told[check].status == "insufficient"
        assert told[check].required
        assert told[check].code == UNTRIED
    assert told["overfit.ten_batches"].status == "not_applicable"
    assert told["overfit.ten_batches"].code == DECLARED
    assert "a generative model" in told["overfit.ten_batches"].evidence
    assert not stops(before_worker(host()))


def test_trial_on_a_cpu_does_not_clear_a_cuda_job():
    made = Trial(check="wiring.x", status="pass", device="cpu", evidence="well")
    for same in (for_device(made, uses_cuda=False), for_device(made.model_copy(update={"device": "cuda"}), True)):
        assert same.status == "pass"
    assert for_device(made.model_copy(update={"device": "host"}), True).status == "pass"
    capped = for_device(made, uses_cuda=True)
    assert (capped.status, capped.required) == ("insufficient", False)
    assert (capped.code, capped.evidence.rpartition(": ")[2]) == (CPU_ONLY, "well")
    failed = made.model_copy(update={"status": "fail"})
    assert for_device(failed, uses_cuda=True) == failed


def test_recorded_preflight_is_asked_again_when_device_or_stores_change():
    trial = Trial(check="wiring.x", status="pass", device="cpu", evidence="well")
    seen = host()
    worker = PreflightResult(memory=None, seconds=seen.seconds, trials=(trial,), device="cpu")
    recorded = with_host(worker, before_worker(seen), seen, uses_cuda=False).trials
    assert still_holds(recorded, seen, uses_cuda=False)
    assert not still_holds(recorded, seen, uses_cuda=True)
    capped = with_host(worker, before_worker(seen), seen, uses_cuda=True).trials
    # A GPU may be here now, which only the worker can tell.
    assert not still_holds(capped, seen, uses_cuda=True)
    assert not still_holds(recorded, replace(seen, spec=toy_jobs.spec_with(**SPOT)), uses_cuda=False)
    # The worker has tried no folder for copies.
    with_copies = {**seen.stores, "copies of checkpoints in /volume": lambda: None}
    assert not still_holds(recorded, replace(seen, stores=with_copies), uses_cuda=False)
