"""Several processes train one model: as one would, with the first's decisions, and one clear error."""

import signal
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import told_by_ranks, train_by_ranks
from toy_jobs import changed_use_case, spec_with, train_job

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import LeaseLostError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG, EXIT_INTERNAL, EXIT_LEASE_LOST, EXIT_PREEMPTED
from trainworthy.lifecycle.folder_lock import Lease, locked
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult

# Dropout draws otherwise in each rank, so that equal curves need a network without it.
SAME = ("nn.Dropout(0.1)", "nn.Identity()")
# 74 rows an update in two parts: neither two nor three ranks get parts of equal size.
UNEVEN: dict[str, Any] = {
    "batch_size": 37, "accumulate": 2, "ema": {"decay": 0.9}, "clip_norm": 0.3, "checkpoint_every_steps": 7
}  # fmt: skip
FORWARD = "    def forward(self, inputs):\n"
# In a rank that the environment names: the tenth forward pass of training does what FAULT says.
FAULTS = """
    passes = 0

    def fault(self):
        import os, signal
        self.passes += self.training
        if os.environ.get("RANK") != os.environ.get("FAULTY", "1") or self.passes != 10:
            return
        match os.environ.get("FAULT"):
            case "kill": os.kill(os.getpid(), signal.SIGKILL)
            case "ask": os.kill(os.getpid(), signal.SIGTERM)
            case "raise": raise ValueError("shop 7 is unknown")
            case "move":
                with torch.no_grad(): self.layers[0].weight[0, 0] += 1e-6
            case "loop":
                while True: pass

"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The toy without dropout."""
    return changed_use_case(tmp_path_factory.mktemp("plain") / "toy", SAME)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Path:
    """The toy with dropout, and faults that the environment asks for."""
    return changed_use_case(
        tmp_path_factory.mktemp("faulty") / "toy", (FORWARD, f"{FAULTS}{FORWARD}        self.fault()\n")
    )


def by_one(job: TrainJob) -> TrainResult:
    """What one process makes of it."""
    Path(job.out).mkdir(parents=True)
    with locked(Path(job.out), print):
        return run_stage(job.model_copy(update={"processes": 1}))


def job_of(splits: Path, out: Path, use_case: Path, size: int = 2, **fields: Any) -> TrainJob:
    training = spec_with(training=UNEVEN | fields.pop("training", {}))
    return train_job(splits, out, "smoke", spec=training, use_case=use_case, processes=size, **fields)


def losses(points) -> list[float]:
    return [point.loss for point in points]


@pytest.mark.parametrize("tensors", ["ahead", "per_batch"])
def test_any_number_of_ranks_trains_as_one_process_does(splits, plain, tmp_path, tensors):
    sizes = (1, 2, 3) if tensors == "ahead" else (1, 2)
    jobs = {
        size: job_of(splits, tmp_path / f"{size}", plain, size, training={"tensors": tensors}, slices=("shop",))
        for size in sizes
    }
    one = by_one(jobs[1])
    for size in sizes[1:]:
        result = train_by_ranks(jobs[size])
        assert losses(result.curve) == pytest.approx(losses(one.curve), abs=1e-6), size
        assert result.metrics["val_loss"] == pytest.approx(one.metrics["val_loss"], abs=1e-6), size
        # What is scored beside the curve takes every row's loss, in the order of the rows.
        assert [point.slice for point in result.monitored] == [point.slice for point in one.monitored]
        assert losses(result.monitored) == pytest.approx(losses(one.monitored), abs=1e-6), size
        assert any(f"{size} processes" in note for note in result.notes)
        # Of all processes together, since all of them have to fit the machine.
        assert result.metrics["peak_memory_bytes"] > 1.3 * one.metrics["peak_memory_bytes"]
        assert not result.alarms


def test_parameters_without_a_gradient_and_those_of_the_loss_are_trained_alike(splits, tmp_path):
    use_case = changed_use_case(
        tmp_path / "toy", SAME,
        ("        self.shop =", "        self.unused = nn.Linear(3, 3)\n        self.shop ="),
        ("def loss_fn(outputs, targets):\n", "sharpness = nn.Parameter(torch.zeros(()))\n\n\n"
         "def build_optimizers(model, declared):\n"
         "    return [torch.optim.AdamW([*model.parameters(), sharpness], lr=declared['learning_rate'])]\n\n\n"
         "def loss_fn(outputs, targets):\n    outputs = outputs * sharpness.exp()\n"),
    )  # fmt: skip
    one, two = (
        by_one(job_of(splits, tmp_path / "1", use_case)),
        train_by_ranks(job_of(splits, tmp_path / "2", use_case)),
    )
    assert losses(two.curve) == pytest.approx(losses(one.curve), abs=1e-6)


@pytest.mark.parametrize("action", ["skip_batch", "roll_back"])
def test_what_the_first_decides_all_do(splits, tmp_path, action):
    """Batches with a row whose loss is not finite are left out by all, whoever has the row; or all go back."""
    use_case = changed_use_case(
        tmp_path / "toy", SAME,
        ("dim=1)).squeeze(1)", "dim=1)).squeeze(1) / (inputs['numbers'][:, 0] < 2.5)"),
    )  # fmt: skip
    training = {"monitors": {"non_finite": action, "most_times": 3}, "epochs": 8}
    one, two = (
        train(job_of(splits, tmp_path / name, use_case, training=training))
        for name, train in (("1", by_one), ("2", train_by_ranks))
    )
    assert one.alarms[0].action == action
    assert [(alarm.step, alarm.action) for alarm in two.alarms] == [(alarm.step, alarm.action) for alarm in one.alarms]
    assert two.steps == one.steps
    assert losses(two.curve) == pytest.approx(losses(one.curve), abs=1e-6)


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_buffers_that_a_forward_pass_reads_are_the_firsts(splits, tmp_path, sharding):
    """A mean of a rank's own rows is subtracted from the next ones: each would have another, and replicas part."""
    seen = """
        if self.training:
            import os
            with open(f"{os.environ['SEEN']}{os.environ['RANK']}", "a") as file: file.write(f"{self.center.tolist()} ")
            with torch.no_grad(): self.center += 0.1 * inputs['numbers'].mean(0)
"""
    use_case = changed_use_case(
        tmp_path / "toy", SAME,
        ("        self.shop =", "        self.register_buffer('center', torch.zeros(2))\n        self.shop ="),
        ('torch.cat([inputs["numbers"], ', 'torch.cat([inputs["numbers"] - self.center, '),
        (FORWARD, FORWARD + seen),
    )  # fmt: skip
    job = job_of(splits, tmp_path / "out", use_case, training={"accumulate": 1, "ema": None}, sharding=sharding)
    train_by_ranks(job, {"SEEN": str(tmp_path / "seen")})
    updates = slice(-job.training.epochs * 3, None)
    first, second = ((tmp_path / f"seen{rank}").read_text().split("] ")[:-1][updates] for rank in range(2))
    assert first == second
    assert len(set(first)) == len(first)


def test_early_stopping_ends_all(splits, plain, tmp_path):
    training = {
        "optimizer": {"name": "adamw", "learning_rate": 1.0, "weight_decay": 0.0}, "epochs": 20,
        "early_stopping": {"every": 4, "patience": 1, "min_steps": 24},
    }  # fmt: skip
    result = train_by_ranks(job_of(splits, tmp_path / "out", plain, training=training))
    assert result.ended == "early"
    assert result.steps < result.planned_steps


def test_a_training_by_ranks_goes_on_bit_for_bit_after_any_end(splits, faulty, tmp_path):
    quiet = train_by_ranks(job_of(splits, tmp_path / "quiet", faulty))
    job = job_of(splits, tmp_path / "ended", faulty)
    code, told = told_by_ranks(job, {"FAULT": "kill"})
    assert code == -signal.SIGKILL
    assert told["rank"] == 1
    assert "rank 1 of 2" in told["problem"]
    assert "SIGKILL" in told["problem"]
    code, _ = told_by_ranks(job, {"FAULT": "ask"})
    assert code == EXIT_PREEMPTED
    code, told = told_by_ranks(job, {"FAULT": "kill", "FAULTY": "0"})
    assert (code, told["rank"]) == (-signal.SIGKILL, 0)
    result = train_by_ranks(job)
    assert result.resumed_from_step > 0
    assert result.parameters_sha256 == quiet.parameters_sha256
    assert losses(result.curve) == losses(quiet.curve)


def test_a_training_goes_on_with_another_number_of_processes_and_says_so(splits, plain, tmp_path):
    """From one to two, from two to one: with the curve of one throughout, to the last digits."""
    whole = by_one(job_of(splits, tmp_path / "whole", plain))
    job = job_of(splits, tmp_path / "out", plain)
    Path(job.out).mkdir()
    with locked(Path(job.out), print), pytest.raises(PreemptedError):
        run_stage(job.model_copy(update={"processes": 1}), should_stop=lambda: True)
    two = train_by_ranks(job)
    assert two.resumed_from_step == 1
    assert any("processes 2 instead of 1" in note for note in two.notes)
    assert made_by(two) == [(1, 1), (2, 2)]
    assert "trained by 1 process, by 2 from update 2 on, each on its share of every batch" in two.notes
    assert losses(two.curve) == pytest.approx(losses(whole.curve), abs=1e-6)
    with locked(Path(job.out), print):
        one = run_stage(job.model_copy(update={"processes": 1}))
    assert one.resumed_from_step == two.steps
    assert any("processes 1 instead of 2" in note for note in one.notes)
    # It had no update left to make.
    assert made_by(one) == made_by(two)


def made_by(result: TrainResult) -> list[tuple[int, int]]:
    return [(part.first_step, part.processes) for part in result.made_by]


def test_three_ranks_go_on_bit_for_bit(splits, faulty, tmp_path):
    """Of three the order in which gradients are added matters, which DistributedDataParallel changes after a pass."""
    quiet, job = (
        job_of(splits, tmp_path / name, faulty, 3, training={"checkpoint_every_steps": 2})
        for name in ("quiet", "ended")
    )
    expected = train_by_ranks(quiet)
    told_by_ranks(job, {"FAULT": "kill", "FAULTY": "2"})
    result = train_by_ranks(job)
    assert result.resumed_from_step > 0
    assert result.parameters_sha256 == expected.parameters_sha256


def test_a_lost_lease_ends_all(splits, faulty, tmp_path, monkeypatch):
    def lost(lease):
        raise LeaseLostError("another run took the folder's lock", value="", fix="")

    monkeypatch.setattr(Lease, "check_now_and_then", lost)
    code, told = told_by_ranks(job_of(splits, tmp_path / "out", faulty))
    assert (code, told["rank"]) == (EXIT_LEASE_LOST, 0)


def test_a_rank_that_is_slow_to_prepare_is_named(splits, tmp_path):
    use_case = changed_use_case(
        tmp_path / "toy",
        ("def to_tensors(rows, preprocessing):\n", "def to_tensors(rows, preprocessing):\n    import os, time\n"
         "    while os.environ.get('RANK') == '1': time.sleep(0.1)\n"),
    )  # fmt: skip
    job = job_of(splits, tmp_path / "out", use_case, collective_timeout_seconds=6.0)
    code, told = told_by_ranks(job)
    assert (code, told["rank"]) == (EXIT_HANG, 1)
    assert "in to_tensors" in told["value"]


def test_a_branch_that_is_left_out_later_is_told_with_what_helps(splits, tmp_path):
    use_case = changed_use_case(
        tmp_path / "toy", SAME,
        ("        self.shop =", "        self.passes, self.late = 0, nn.Linear(1, 1, bias=False)\n        self.shop ="),
        (").squeeze(1)\n", ").squeeze(1) + (0 if self.later() else self.late.weight.sum())\n\n"
         "    def later(self):\n        self.passes += self.training\n        return self.passes > 9\n"),
    )  # fmt: skip
    code, told = told_by_ranks(job_of(splits, tmp_path / "out", use_case, training={"accumulate": 1}))
    assert code == EXIT_BAD_INPUT
    assert "got no gradient in an update" in told["problem"]


def test_an_error_is_told_once_on_behalf_of_its_rank(splits, faulty, tmp_path):
    code, told = told_by_ranks(job_of(splits, tmp_path / "out", faulty), {"FAULT": "raise"})
    assert (code, told["rank"]) == (EXIT_INTERNAL, 1)
    assert told["problem"] == "rank 1 of 2: ValueError: shop 7 is unknown"
    assert told["value"].startswith("model.py:")


def test_a_rank_that_hangs_is_named_with_its_line(splits, faulty, tmp_path):
    job = job_of(splits, tmp_path / "out", faulty, collective_timeout_seconds=8.0)
    code, told = told_by_ranks(job, {"FAULT": "loop"})
    assert (code, told["rank"]) == (EXIT_HANG, 1)
    assert "model.py" in told["value"]
    assert "in fault" in told["value"]


def test_replicas_that_differ_raise_an_alarm(splits, faulty, tmp_path):
    result = train_by_ranks(job_of(splits, tmp_path / "out", faulty, training={"epochs": 4}), {"FAULT": "move"})
    assert "replicas_apart" in {alarm.monitor for alarm in result.alarms}


def test_more_ranks_than_rows_and_ranks_with_other_code_are_refused(splits, plain, tmp_path):
    few = job_of(splits, tmp_path / "few", plain, 3, training={"batch_size": 2, "accumulate": 1})
    code, told = told_by_ranks(few)
    assert code == EXIT_BAD_INPUT
    assert told["value"] == "2 rows for 3 processes"
    other = changed_use_case(tmp_path / "other", SAME, ("SHOPS =", "OTHER = 1\nSHOPS ="))
    job = job_of(splits, tmp_path / "out", plain)
    others = job.model_copy(update={"use_case_folder": str(other)})
    code, told = told_by_ranks(job, others=others)
    assert code == EXIT_BAD_INPUT
    assert told["problem"].endswith("rank 1 of 2 would train something else than the first")
    assert told["value"].startswith("code of the use case: ")
