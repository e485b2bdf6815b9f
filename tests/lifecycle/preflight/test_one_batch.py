import errno
import os
import signal

import pytest
import torch
import toy_jobs

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight import sample
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.one_batch import checkpoint_roundtrip
from trainworthy.lifecycle.engine.preflight.one_batch.checkpoint_roundtrip import kill_while_writing
from trainworthy.lifecycle.engine.preflight.one_batch.checks import CHECKS
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import load_newest, save_checkpoint
from trainworthy.lifecycle.storage.durable.folder import FolderStore

ALL = [check.id for check in CHECKS if check.id != "one_batch.ahead"]


def tried(splits, tmp_path, *replacements, **job):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *replacements)
    job = toy_jobs.preflight_job(splits, tmp_path, use_case=use_case, **job)
    drawn = draw_sample(job, read_rows(job.training_file, job.rows), "cpu")
    found = run_checks(CHECKS, (job, drawn), device="cpu", not_applicable={})
    # A label that is no text has no places that could be seen ahead.
    return {trial.check: trial for trial in found if trial.status != "not_applicable"}


def test_healthy_toy_passes_every_part_in_few_updates(splits, tmp_path):
    found = tried(splits, tmp_path)
    assert [trial.status for trial in found.values()] == ["pass"] * len(ALL)
    assert sum(trial.optimizer_steps for trial in found.values()) <= 12


def test_sample_has_the_weights_that_a_stage_trains_with(splits, tmp_path):
    spec = toy_jobs.spec_with(training={"class_weights": {"positive": 5.0}})
    job = toy_jobs.preflight_job(splits, tmp_path, spec=spec)
    data = draw_sample(job, read_rows(job.training_file, job.rows), "cpu").subject.training
    positive, negative = (data.weights[data.targets == label].mean() for label in (1, 0))
    assert float(positive / negative) == pytest.approx(5.0)
    assert float(data.weights.mean()) == pytest.approx(1.0)


def test_sample_has_fewer_rows_where_a_row_is_large(splits, tmp_path, monkeypatch):
    job = toy_jobs.preflight_job(splits, tmp_path)
    rows = read_rows(job.training_file, job.rows)
    whole = draw_sample(job, rows, "cpu")
    row_bytes = sum(tensor[0].nbytes for tensor in (*whole.data.inputs.values(), whole.data.targets))
    assert len(whole.rows) == len(rows)
    monkeypatch.setattr(sample, "LEAST_ROWS", 100)
    monkeypatch.setattr(sample, "SAMPLE_BYTES", 300 * row_bytes)
    few = draw_sample(job, rows, "cpu")
    assert len(few.data.targets) == pytest.approx(300, abs=1)
    assert few.subject.groups is not None
    assert len(few.subject.held_out.targets) == len(few.subject.groups) == pytest.approx(300, abs=1)
    assert few.preprocessing == whole.preprocessing
    monkeypatch.setattr(sample, "SAMPLE_BYTES", 1)
    update = job.training.batch_size * job.training.accumulate
    assert len(draw_sample(job, rows, "cpu").data.targets) == pytest.approx(max(100, update), abs=1)


def test_batch_norm_with_parts_of_two_rows_passes(splits, tmp_path):
    network = (
        "nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))",
        "nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))",
    )
    spec = toy_jobs.spec_with(training={"batch_size": 2, "accumulate": 32})
    found = tried(splits, tmp_path, network, spec=spec)
    assert found["one_batch.train"].evidence.startswith("64 rows")
    assert [trial.status for trial in found.values()] == ["pass"] * len(ALL)


@pytest.mark.parametrize(
    ("replacement", "failed", "untried"),
    [
        (("return torch.sigmoid(outputs)", "return outputs * 100"), "predict", {"export"}),
        (
            ("def to_tensors(rows, preprocessing):\n", "def to_tensors(rows, preprocessing):\n    rows = rows[::-1]\n"),
            "predict",
            {"export"},
        ),
        (
            ("    def forward(self, inputs):\n", "    def forward(self, inputs):\n        assert self.training\n"),
            "validate",
            {"predict", "ahead", "export"},
        ),
    ],
    ids=["no_probabilities", "rows_mixed_up", "evaluation_breaks"],
)
def test_part_that_fails_is_told_and_those_after_it_are_untried(splits, tmp_path, replacement, failed, untried):
    found = tried(splits, tmp_path, replacement)
    assert {id for id, trial in found.items() if trial.status in ("fail", "error")} == {f"one_batch.{failed}"}
    assert {id for id, trial in found.items() if trial.status == "insufficient"} == {f"one_batch.{n}" for n in untried}


LOSS = 'return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")'


@pytest.mark.parametrize(
    ("loss", "evidence"),
    [
        (f"{LOSS} / (targets * 0)", "the loss is inf"),
        (f"{LOSS} - float('nan')", "the loss is nan"),
        (LOSS.replace("(outputs,", "(outputs * 0,"), "the gradient norm is 0.0"),
        (LOSS.replace("(outputs,", "(outputs.detach(),"), "no parameter that is trained reaches it"),
    ],
    ids=["infinite", "not_a_number", "no_gradient", "detached"],
)
def test_loss_that_cannot_be_trained_on_stops_before_all_other_parts(splits, tmp_path, loss, evidence):
    found = tried(splits, tmp_path, (LOSS, loss))
    first = found.pop("one_batch.train")
    assert first.status in ("fail", "error")
    assert evidence in first.evidence
    assert {trial.status for trial in found.values()} == {"insufficient"}


# The first pass makes what later ones need, and a buffer remembers that it did; a checkpoint holds the buffer alone.
MADE_ONCE = (
    (
        "        self.layers = ",
        "        self.register_buffer('made', torch.tensor(False))\n        self.scale = SCALE\n        self.layers = ",
    ),
    (
        "    def forward(self, inputs):\n",
        "    def forward(self, inputs):\n        if self.training and not self.made:\n"
        "            self.scale = torch.ones(1)\n            self.made.fill_(True)\n",
    ),
    (".squeeze(1)\n", ".squeeze(1) * (self.scale if self.training else 1.0)\n"),
)


@pytest.mark.parametrize(
    ("scale", "failed"), [("None", {"one_batch.resume"}), ("torch.ones(1)", set())], ids=["made_once", "always_there"]
)
def test_model_that_makes_a_part_at_its_first_pass_alone_cannot_resume(splits, tmp_path, scale, failed):
    (buffer, made), *rest = MADE_ONCE
    found = tried(splits, tmp_path, (buffer, made.replace("SCALE", scale)), *rest)
    assert {id for id, trial in found.items() if trial.status != "pass"} == failed


def test_kill_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path):
    state = toy_jobs.plain_state()
    state.step = 1
    save_checkpoint(tmp_path, "toy", state)
    state.step = 2
    assert kill_while_writing(tmp_path, "toy", state)
    half = next(tmp_path.glob(".writing-*/state.pt"))
    assert half.stat().st_size > 0
    again = toy_jobs.plain_state()
    assert load_newest([FolderStore(tmp_path)], "toy", again) == (True, ())
    assert again.step == 1


def test_kill_while_writing_asks_no_accelerator_in_the_fork(tmp_path, monkeypatch):
    parent = os.getpid()

    def random_numbers():
        # As torch does where CUDA is in use.
        assert os.getpid() == parent, "Cannot re-initialize CUDA in forked subprocess"
        return []

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", random_numbers)
    assert kill_while_writing(tmp_path, "toy", toy_jobs.plain_state())


def test_writer_that_nobody_kills_ends_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_roundtrip, "SECONDS", 0.1)
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        checkpoint_roundtrip._write_half(tmp_path, "toy", {"step": 1, "made_with": {}}, b"half", writing)
    _, status = os.waitpid(writer, 0)
    os.close(writing)
    assert os.read(reading, 2) == b"1"
    os.close(reading)
    assert os.WTERMSIG(status) == signal.SIGALRM


def test_writer_that_ends_by_itself_is_not_taken_for_killed(tmp_path):
    (tmp_path / "file").write_text("")
    assert not kill_while_writing(tmp_path / "file", "toy", toy_jobs.plain_state())


def test_write_that_could_not_be_interrupted_stops_nothing(splits, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_roundtrip, "kill_while_writing", lambda *_: False)
    trial = tried(splits, tmp_path)["one_batch.interrupted_write"]
    assert (trial.status, trial.required) == ("insufficient", False)


def test_checkpoint_goes_to_the_folder_for_copies_and_back_and_leaves_nothing_there(splits, tmp_path):
    durable = tmp_path / "durable"
    durable.mkdir()
    assert tried(splits, tmp_path, durable=str(durable))["one_batch.checkpoint"].status == "pass"
    assert list(durable.iterdir()) == []


def test_folder_for_copies_that_is_full_or_gives_back_other_bytes_fails_the_checkpoint(splits, tmp_path, monkeypatch):
    durable = tmp_path / "durable"
    durable.mkdir()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FolderStore, "add", full)
    trial = tried(splits, tmp_path, durable=str(durable))["one_batch.checkpoint"]
    assert trial.status == "fail"
    assert "No space left" in trial.evidence
    assert "TRAINWORTHY_DURABLE" in trial.fix
