"""A script that several processes run: one session, one curve, one end, and each process its own random numbers."""

import signal
from pathlib import Path
from typing import Any

import own_trainers
import pytest
import toy_jobs
from forked_ranks import told_by_ranks, train_by_ranks

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG, EXIT_INTERNAL, EXIT_PREEMPTED
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult

HAND = own_trainers.documented("processes")
PLAIN = ("nn.Dropout(0.1)", "nn.Identity()")


def job_of(splits: Path, folder: Path, out: Path, size: int = 2, stage: str = "pilot", **fields: Any) -> TrainJob:
    return own_trainers.job(splits, folder, out, stage, processes=size, **fields)


def by_one(job: TrainJob) -> TrainResult:
    Path(job.out).mkdir(parents=True)
    with locked(Path(job.out), print):
        return run_stage(job.model_copy(update={"processes": 1}))


def losses(result: TrainResult) -> list[float]:
    return [point.loss for point in result.curve]


@pytest.fixture
def plain(tmp_path) -> Path:
    """The script, over a network without dropout."""
    folder = own_trainers.use_case(tmp_path / "toy", HAND)
    model = folder / "model.py"
    model.write_text(model.read_text().replace(*PLAIN))
    return folder


def test_any_number_of_processes_trains_as_one_does(splits, plain, tmp_path):
    one = by_one(job_of(splits, plain, tmp_path / "one"))
    for size in (2, 4):
        result = train_by_ranks(job_of(splits, plain, tmp_path / f"{size}", size))
        assert losses(result) == pytest.approx(losses(one), abs=1e-6)
        assert result.metrics["val_loss"] == pytest.approx(one.metrics["val_loss"], abs=1e-6)
        assert any(f"{size} processes" in note for note in result.notes)
        assert result.trainer is not None
        assert result.trainer.gradients
        assert result.trainer.closer
        assert not result.alarms


ZERO = "        optimizer.zero_grad()\n"


def asks(step: int, rank: int) -> tuple[str, str]:
    """The process of this rank is asked to end at this update, the first time."""
    return ZERO, (
        f"        if step == {step} and session.rank == {rank} and not (session.folder / 'asked').exists():\n"
        "            import os, signal\n"
        "            (session.folder / 'asked').touch()\n"
        f"            os.kill(os.getpid(), signal.SIGTERM)\n{ZERO}"
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_stopped_training_goes_on_bit_for_bit_whoever_was_asked(splits, tmp_path, rank):
    """With dropout, each process drawing its own."""
    whole = train_by_ranks(job_of(splits, own_trainers.use_case(tmp_path / "whole", HAND), tmp_path / "1"))
    folder = own_trainers.use_case(tmp_path / "parted", HAND, asks(50, rank))
    job = job_of(splits, folder, tmp_path / "2")
    assert told_by_ranks(job)[0] == EXIT_PREEMPTED
    result = train_by_ranks(job)
    assert 50 <= result.resumed_from_step <= 52
    assert result.parameters_sha256 == whole.parameters_sha256
    assert result.curve == whole.curve


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_training_goes_on_by_another_number_of_processes(splits, plain, tmp_path, before, after):
    one = by_one(job_of(splits, plain, tmp_path / "one"))
    (plain / "train.py").write_text((plain / "train.py").read_text().replace(*asks(50, 0)))
    job = job_of(splits, plain, tmp_path / "parted", before)
    assert told_by_ranks(job)[0] == EXIT_PREEMPTED
    result = train_by_ranks(job.model_copy(update={"processes": after}))
    assert result.resumed_from_step >= 50
    assert losses(result) == pytest.approx(losses(one), abs=1e-6)


def test_processes_that_train_different_models_are_told(splits, tmp_path):
    alone = ("DistributedDataParallel(network) if session.processes > 1 else network", "network")
    code, told = told_by_ranks(job_of(splits, own_trainers.use_case(tmp_path / "toy", HAND, alone), tmp_path / "out"))
    assert code == EXIT_BAD_INPUT
    assert "after update 1 rank 1 of 2 has other weights than the first" in told["problem"]
    assert "shop.weight" in told["value"]
    assert "DistributedDataParallel" in told["fix"]


def test_processes_that_return_different_models_are_told_where_none_was_looked_at(splits, tmp_path):
    alone = ("DistributedDataParallel(network) if session.processes > 1 else network", "network")
    unseen = ("rows=rows, model=network, optimizer=optimizer)", "rows=rows)")
    folder = own_trainers.use_case(tmp_path / "toy", HAND, alone, unseen)
    code, told = told_by_ranks(job_of(splits, folder, tmp_path / "out", stage="smoke"))
    assert code == EXIT_BAD_INPUT
    assert "at the end rank 1 of 2 has other weights than the first" in told["problem"]


def test_processes_that_train_on_the_same_rows_are_told(splits, tmp_path):
    all_rows = ("session.share(batch(session, step))", "batch(session, step)")
    folder = own_trainers.use_case(tmp_path / "toy", HAND, all_rows)
    code, told = told_by_ranks(job_of(splits, folder, tmp_path / "out"))
    assert code == EXIT_BAD_INPUT
    assert "all 2 processes train on the same rows" in told["problem"]
    assert "session.share(rows)" in told["fix"]


def test_loss_of_one_process_that_is_not_finite_ends_all_before_the_update(splits, tmp_path):
    bad = (ZERO, f"        if step == 30 and session.rank == 1:\n            loss = loss * float('nan')\n{ZERO}")
    result = train_by_ranks(job_of(splits, own_trainers.use_case(tmp_path / "toy", HAND, bad), tmp_path / "out"))
    assert result.alarm is not None
    assert (result.alarm.monitor, result.alarm.step, result.steps) == ("non_finite_loss", 30, 30)


def test_error_of_one_process_is_told_once_with_its_rank(splits, tmp_path):
    bad = (
        ZERO,
        f"        if step == 30 and session.rank == 1:\n            raise ValueError('shop 7 is unknown')\n{ZERO}",
    )
    folder = own_trainers.use_case(tmp_path / "toy", HAND, bad)
    code, told = told_by_ranks(job_of(splits, folder, tmp_path / "out"))
    assert (code, told["rank"]) == (EXIT_INTERNAL, 1)
    assert "shop 7 is unknown" in told["problem"]


def test_killed_process_is_named_with_where_it_was(splits, tmp_path):
    kills = "            import os\n            os.kill(os.getpid(), 9)\n"
    bad = (ZERO, f"        if step == 30 and session.rank == 1:\n{kills}{ZERO}")
    folder = own_trainers.use_case(tmp_path / "toy", HAND, bad)
    code, told = told_by_ranks(job_of(splits, folder, tmp_path / "out"))
    assert (code, told["rank"]) == (-signal.SIGKILL, 1)
    assert "in its script, after 30 updates" in told["problem"]


def test_look_and_loss_may_be_told_apart_and_nothing_resumed(splits, plain, tmp_path):
    script = (plain / "train.py").read_text()
    for old, new in (
        ("session.resume(model=network, optimizer=optimizer)", "0"),
        ("        session.step(loss=loss, rows=rows, model=network, optimizer=optimizer)\n",
         "        session.look(network, optimizer=optimizer)\n"),
        ("        optimizer.step()\n", "        optimizer.step()\n        session.step(loss=loss, model=network)\n"),
    ):  # fmt: skip
        assert script.count(old) == 1
        script = script.replace(old, new)
    (plain / "train.py").write_text(script)
    one, two = by_one(job_of(splits, plain, tmp_path / "1")), train_by_ranks(job_of(splits, plain, tmp_path / "2"))
    assert losses(two) == pytest.approx(losses(one), abs=1e-6)


def test_update_between_look_and_step_is_told_before_an_end_that_was_asked_for(splits, plain, tmp_path):
    step = "        session.step(loss=loss, rows=rows, model=network, optimizer=optimizer)\n"
    script = (plain / "train.py").read_text().replace(*asks(50, 1))
    (plain / "train.py").write_text(script.replace(step, f"        session.look(network, optimizer=optimizer)\n{step}"))
    job = job_of(splits, plain, tmp_path / "out", spec=toy_jobs.spec_with(training={"checkpoint_every_steps": 1000}))
    code, told = told_by_ranks(job)
    assert (code, told["problem"]) == (EXIT_PREEMPTED, "preempted; a checkpoint is written")
    assert train_by_ranks(job).resumed_from_step >= 50


def test_end_that_a_script_takes_by_itself_has_its_checkpoint_once_it_asks(splits, plain, tmp_path):
    leaves = (
        "        if session.should_stop:\n            break\n",
        "        if step == 50 and session.newest is None:\n            import os, signal\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n            session.ask()\n"
        "            session.checkpoint(model=network, optimizer=optimizer)\n            raise SystemExit(143)\n"
        "        if session.should_stop:\n            break\n",
    )
    (plain / "train.py").write_text((plain / "train.py").read_text().replace(*leaves))
    job = job_of(splits, plain, tmp_path / "out", spec=toy_jobs.spec_with(training={"checkpoint_every_steps": 1000}))
    assert told_by_ranks(job)[0] == EXIT_PREEMPTED
    assert train_by_ranks(job).resumed_from_step == 51


def test_model_that_one_process_alone_gives_is_told(splits, plain, tmp_path):
    update = "\n        optimizer.step"
    alone = (f"model=network, optimizer=optimizer){update}", f"model=network if session.rank == 0 else None){update}")
    script = (plain / "train.py").read_text()
    assert alone[0] in script
    (plain / "train.py").write_text(script.replace(*alone))
    code, told = told_by_ranks(job_of(splits, plain, tmp_path / "out"))
    assert code == EXIT_BAD_INPUT
    assert told["value"] == "the first gives a model of 5 parameters, rank 1 of 2 gives no model"


# As docs/how-to/own-trainer.md says of sharded models.
SHARDS = (
    ("    model = DistributedDataParallel(network) if session.processes > 1 else network\n",
     "    from torch.distributed.fsdp import fully_shard\n"
     "    from torch.distributed.device_mesh import init_device_mesh\n"
     "    import torch.distributed.checkpoint as dcp\n"
     "    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_state_dict\n"
     "    from torch.distributed.checkpoint.state_dict import StateDictOptions\n"
     "    model = fully_shard(network, mesh=init_device_mesh('cpu', (session.processes,)))\n"),
    ("    first = session.resume(model=network, optimizer=optimizer)\n",
     "    first = 0\n"
     "    if session.newest is not None:\n"
     "        weights, moments = get_state_dict(network, optimizer)\n"
     "        dcp.load({'model': weights, 'optimizer': moments}, checkpoint_id=str(session.newest))\n"
     "        set_state_dict(network, optimizer, model_state_dict=weights, optim_state_dict=moments)\n"
     "        first = session.done\n"),
    ("        session.step(loss=loss, rows=rows, model=network, optimizer=optimizer)\n",
     "        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1e9).full_tensor()\n"
     "        session.step(loss=loss, rows=rows, grad_norm=norm)\n"),
    ("        session.checkpoint(model=network, optimizer=optimizer)\n",
     "        if session.checkpoint_due:\n"
     "            with session.checkpoint_files() as files:\n"
     "                weights, moments = get_state_dict(network, optimizer)\n"
     "                dcp.save({'model': weights, 'optimizer': moments}, checkpoint_id=str(files))\n"),
    ("    return network\n",
     "    return get_model_state_dict(network, options=StateDictOptions(full_state_dict=True))\n"),
)  # fmt: skip


def test_sharded_model_is_trained_kept_in_shards_and_goes_on(splits, plain, tmp_path):
    one = by_one(job_of(splits, plain, tmp_path / "one"))
    script = (plain / "train.py").read_text()
    for old, new in (*SHARDS, asks(50, 1)):
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    (plain / "train.py").write_text(script)
    job = job_of(splits, plain, tmp_path / "shards")
    assert told_by_ranks(job)[0] == EXIT_PREEMPTED
    kept = max((tmp_path / "shards" / "checkpoints").iterdir())
    assert {path.name for path in (kept / "files").iterdir()} >= {"__0_0.distcp", "__1_0.distcp"}
    result = train_by_ranks(job)
    assert result.resumed_from_step >= 50
    assert losses(result) == pytest.approx(losses(one), abs=1e-5)
    assert result.metrics["val_loss"] == pytest.approx(one.metrics["val_loss"], abs=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "told_of"),
    [
        ("        session.checkpoint(model=network, optimizer=optimizer)\n",
         "        session.checkpoint(model=network)\n", "one process cannot look at it"),
        ("        session.checkpoint(model=network, optimizer=optimizer)\n", "", "train returned a model whose"),
    ],
    ids=["checkpoint", "returned"],
)  # fmt: skip
def test_sharded_model_is_refused_wherever_one_process_would_look_at_it(splits, plain, tmp_path, old, new, told_of):
    script = (plain / "train.py").read_text().replace(*SHARDS[0]).replace(*SHARDS[2])
    script = script.replace("session.resume(model=network, optimizer=optimizer)", "0").replace(old, new)
    (plain / "train.py").write_text(script)
    code, told = told_by_ranks(job_of(splits, plain, tmp_path / "out"))
    assert code == EXIT_BAD_INPUT
    assert told_of in told["problem"]


def test_norm_of_sharded_gradients_that_is_not_finite_ends_all(splits, plain, tmp_path):
    script = (plain / "train.py").read_text()
    for old, new in SHARDS:
        script = script.replace(old, new)
    bad = "        norm = norm * float('nan') if step == 30 else norm\n        session.step("
    (plain / "train.py").write_text(script.replace("        session.step(", bad))
    result = train_by_ranks(job_of(splits, plain, tmp_path / "out"))
    assert result.alarm is not None
    assert (result.alarm.monitor, result.steps) == ("non_finite_gradient", 30)


def test_sharded_model_that_is_to_be_looked_at_is_refused(splits, plain, tmp_path):
    script = (plain / "train.py").read_text().replace(*SHARDS[0])
    (plain / "train.py").write_text(script.replace("session.resume(model=network, optimizer=optimizer)", "0"))
    code, told = told_by_ranks(job_of(splits, plain, tmp_path / "out"))
    assert code == EXIT_BAD_INPUT
    assert "parameters are sharded" in told["problem"]
    assert "grad_norm" in told["fix"]


def test_scripts_that_part_are_told_with_both_calls(splits, tmp_path):
    step = "        session.step(loss=loss, rows=rows, model=network, optimizer=optimizer)\n"
    looks = (step, f"        if step == 30 and session.rank == 1:\n            session.look(network)\n{step}")
    folder = own_trainers.use_case(tmp_path / "toy", HAND, looks)
    code, told = told_by_ranks(job_of(splits, folder, tmp_path / "out"))
    assert code == EXIT_BAD_INPUT
    assert told["value"] == "the first is at session.step, rank 1 of 2 at session.look"


def test_checkpoint_that_one_process_alone_asks_for_is_a_hang_with_its_place(splits, tmp_path):
    """Of the others' backward passes nobody knows that they wait in vain, until the set time is over."""
    alone = ("        session.checkpoint(", "        if session.rank == 0:\n            session.checkpoint(")
    folder = own_trainers.use_case(tmp_path / "toy", HAND, alone)
    spec = toy_jobs.spec_with(training={"checkpoint_every_steps": 10})
    job = job_of(splits, folder, tmp_path / "out", spec=spec, collective_timeout_seconds=4)
    code, told = told_by_ranks(job)
    assert code == EXIT_HANG
    assert "rank 1 in its script, after 10 updates, at train.py:20 in train" in told["problem"]
    assert "rank 0" in told["problem"]
    assert "a condition on the rank" in told["fix"]
