"""Checkpoints that are written beside the training: copied, one at a time, their errors told at a step."""

import errno
import io
import threading
from pathlib import Path

import pytest
import test_checkpoint
import torch
import toy_jobs

from trainworthy.lifecycle.cost.checkpoint_interval import FIRST_CHECKPOINT_SECONDS
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.checkpoints import writer as writer_module
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import load_newest, state_dict, write_checkpoint
from trainworthy.lifecycle.engine.training.checkpoints.checkpointing import Checkpoints
from trainworthy.lifecycle.engine.training.checkpoints.writer import Buffers, Writer
from trainworthy.lifecycle.failure import EXIT_DISK_FULL, EXIT_STORAGE
from trainworthy.lifecycle.protocol.jobs import DURABLE_SECONDS, Interruptions
from trainworthy.lifecycle.storage.checkpoints import checkpoints_in
from trainworthy.lifecycle.storage.durable.folder import FolderStore
from trainworthy.lifecycle.worker import main

state_at = test_checkpoint.state_at


class Tied(torch.nn.Module):
    """Two names for one weight, batch norm's counters, and a layout of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = torch.nn.BatchNorm1d(4)
        self.conv = torch.nn.Conv2d(2, 3, 3)
        self.conv.weight.data = self.conv.weight.data.to(memory_format=torch.channels_last)


def test_copy_is_equal_shares_nothing_and_uses_its_memory_again():
    model, buffers = Tied(), Buffers()
    copied = buffers.copy({"model": model.state_dict(), "others": [torch.arange(3), (1, "two", None), {4: 5.0}]})
    assert copied["others"][1:] == [(1, "two", None), {4: 5.0}]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    places = {name: tensor.data_ptr() for name, tensor in copied["model"].items()}
    assert places["first.weight"] == places["second.weight"]
    assert copied["model"]["conv.weight"].stride() == model.conv.weight.stride()
    assert vars(copied["model"]) == vars(model.state_dict())
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    assert all(torch.equal(before[name], tensor) for name, tensor in copied["model"].items())
    again = buffers.copy({"model": model.state_dict(), "others": []})
    assert places == {name: tensor.data_ptr() for name, tensor in again["model"].items()}
    assert not again["model"]["first.weight"].any()


def test_copy_follows_a_state_whose_shapes_change():
    buffers = Buffers()
    for size in (3, 5, 0, 2):
        assert torch.equal(buffers.copy({"a": torch.arange(size)})["a"], torch.arange(size))


@pytest.fixture
def held(monkeypatch):
    """Writes wait until it is set."""
    event = threading.Event()

    def write(*arguments):
        assert event.wait(60)
        return write_checkpoint(*arguments)

    monkeypatch.setattr(writer_module, "write_checkpoint", write)
    yield event
    event.set()


@pytest.fixture
def writer(tmp_path):
    made = Writer(tmp_path / "checkpoints", "mine")
    yield made
    made.close()


def test_written_is_the_state_at_the_copy_while_the_training_goes_on(writer, held):
    state = state_at(10)
    expected = {name: tensor.clone() for name, tensor in state.model.state_dict().items()}
    writer.begin(state)
    assert writer.busy()
    for parameter in state.model.parameters():
        torch.nn.init.zeros_(parameter)
    state.step = 11
    held.set()
    stored = writer.finish()
    restored = toy_jobs.plain_state()
    load_newest([FolderStore(writer.folder)], "mine", restored)
    assert (restored.step, stored.step) == (10, 10)
    assert all(torch.equal(expected[name], tensor) for name, tensor in restored.model.state_dict().items())
    assert not writer.busy()


def test_write_that_is_due_while_another_is_under_way_is_late_and_not_lost(writer, held):
    checkpoints = Checkpoints(writer, Interruptions(), every_steps=10)
    for step in range(1, 24):
        checkpoints.after_step(state_at(step))
    assert (checkpoints.written, checkpoints.late_steps) == (1, 4)
    held.set()
    writer.finish()
    checkpoints.after_step(state_at(24))
    reference = checkpoints.last(state_at(24))
    assert (checkpoints.written, reference.path) == (2, str(writer.folder / "step-00000024"))
    assert "4 updates late" in checkpoints.cost_notes()[0]


def test_interval_without_steps_goes_by_time(writer):
    now = [0.0]
    checkpoints = Checkpoints(writer, Interruptions(), now=lambda: now[0])
    written = []
    for step in range(1, 4):
        now[0] += FIRST_CHECKPOINT_SECONDS * 0.6
        checkpoints.after_step(state_at(step))
        written.append(checkpoints.written)
    writer.finish()
    assert written == [0, 1, 1]
    now[0] += checkpoints.interval_seconds
    checkpoints.after_step(state_at(4))
    assert checkpoints.written == 2


def test_spot_machine_with_a_declared_distance_keeps_the_bound_all_the_same(writer):
    for spot, expected in ((True, 1), (False, 0)):
        now = [0.0]
        checkpoints = Checkpoints(writer, Interruptions(spot=spot), every_steps=1000, now=lambda now=now: now[0])
        now[0] += DURABLE_SECONDS + 1
        checkpoints.after_step(state_at(1))
        assert checkpoints.written == expected
        writer.finish()


def test_spot_machine_writes_before_the_update_that_would_pass_the_bound(writer):
    """Updates of 100 s: after the eighth the ninth still ends in time, and the tenth would not."""
    now, written = [0.0], []
    for spot, every in ((True, 1000), (False, 1000)):
        now[0], written = 0.0, []
        checkpoints = Checkpoints(writer, Interruptions(spot=spot), every_steps=every, now=lambda: now[0])
        for step in range(1, 11):
            now[0] += 100.0
            checkpoints.after_step(state_at(step))
            writer.finish()
            written.append(checkpoints.written)
        assert written == ([0] * 8 + [1] * 2 if spot else [0] * 10)


def test_last_checkpoint_is_written_once(writer):
    checkpoints = Checkpoints(writer, Interruptions(), every_steps=10)
    checkpoints.after_step(state_at(10))
    first = checkpoints.last(state_at(10))
    resumed = Checkpoints(Writer(writer.folder, "mine"), Interruptions(), every_steps=10, start_step=10)
    assert resumed.last(state_at(10)) == first
    assert (checkpoints.written, resumed.written) == (1, 0)


def test_error_of_the_write_is_raised_at_a_step(writer, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer_module, "write_checkpoint", full)
    checkpoints = Checkpoints(writer, Interruptions(), every_steps=1)
    checkpoints.after_step(state_at(1))
    with pytest.raises(OSError, match="No space left"):
        checkpoints.last(state_at(2))


class Sick:
    """A file whose disk fails in the middle."""

    def __init__(self, file) -> None:
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.file.close()

    def write(self, content) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("opened", "code"),
    [
        (lambda path, mode: io.FileIO("/dev/full", mode), EXIT_DISK_FULL),
        (lambda path, mode: Sick(io.FileIO(path, mode)), EXIT_STORAGE),
    ],
)
def test_disk_that_fails_ends_the_training_with_its_code_and_leaves_no_half(
    splits, tmp_path, monkeypatch, opened, code
):
    real = Path.open

    def planted(path, mode="r", *arguments, **named):
        whole = path.name != "state.pt" or mode != "wb"
        return real(path, mode, *arguments, **named) if whole else opened(path, mode)

    monkeypatch.setattr(Path, "open", planted)
    job = toy_jobs.train_job(splits, tmp_path / "out", "full")
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "job.json"
    path.write_bytes(toy_jobs.canonical_json(toy_jobs.JobFile(job=job).model_dump(mode="json")))
    assert main(["--job", str(path)]) == code
    assert list((tmp_path / "out" / "checkpoints").iterdir()) == []
    assert not (tmp_path / "out" / "result.json").exists()


def test_damaged_ones_above_are_gone_once_a_sound_one_is_written(tmp_path):
    for step in (10, 20):
        write_checkpoint(tmp_path, "mine", state_dict(state_at(step)))
    test_checkpoint.flip_byte(tmp_path / "step-00000020")
    write_checkpoint(tmp_path, "mine", state_dict(state_at(15)))
    assert [path.name for path in checkpoints_in(tmp_path)] == ["step-00000015", "step-00000010"]


def test_resume_with_other_threads_is_told(tmp_path):
    write_checkpoint(tmp_path, "mine", state_dict(state_at(10)))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        _, notes = load_newest([FolderStore(tmp_path)], "mine", toy_jobs.plain_state())
    finally:
        torch.set_num_threads(threads)
    assert notes == (
        f"resumed with threads {threads + 1} instead of {threads}: not bit for bit what an uninterrupted training "
        "would give",
    )


def test_automatic_interval_gives_the_same_result_as_a_declared_one(splits, tmp_path):
    results = [run_stage(toy_jobs.train_job(splits, tmp_path / str(every), spec=spec_of(every))) for every in (None, 5)]
    assert results[0].parameters_sha256 == results[1].parameters_sha256


def spec_of(every):
    return toy_jobs.spec_with(training={"checkpoint_every_steps": every})
