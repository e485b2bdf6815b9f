"""What only a GPU can show. `make test-gpu` runs these, and the other tests of trainings and of preflight on a GPU."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_jobs import ROOT, changed_use_case, environment, preflight_job, spec_with, train_job, write_job

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.rank_files import begin_ranks, read_ends

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

UNEVEN: dict[str, Any] = {"batch_size": 37, "accumulate": 2, "ema": {"decay": 0.9}, "clip_norm": 0.3}


def job_of(splits: Path, out: Path, **fields: Any) -> TrainJob:
    training = spec_with(training=UNEVEN | fields.pop("training", {}))
    return train_job(splits, out, "pilot", **{"spec": training, "device": "cuda", **fields})


def trained(job: TrainJob, **more: Any) -> TrainResult:
    Path(job.out).mkdir(parents=True, exist_ok=True)
    with locked(Path(job.out), print):
        return run_stage(job, **more)


def losses(result: TrainResult) -> list[float]:
    return [point.loss for point in result.curve]


def critical(result: TrainResult) -> list[str]:
    """Alarms but for warnings: for so few rows a GPU is idle, and that is said."""
    return [alarm.monitor for alarm in result.alarms if alarm.severity == "critical"]


def test_a_gpu_trains_as_a_cpu_does(splits, tmp_path):
    use_case = changed_use_case(tmp_path / "toy", ("nn.Dropout(0.1)", "nn.Identity()"))
    gpu = trained(job_of(splits, tmp_path / "gpu", use_case=use_case))
    cpu = trained(job_of(splits, tmp_path / "cpu", use_case=use_case, device="cpu"))
    assert losses(gpu) == pytest.approx(losses(cpu), abs=1e-5)
    assert gpu.gpu_seconds > 0
    assert cpu.gpu_seconds == 0
    assert critical(gpu) == []


@pytest.mark.parametrize("tensors", ["ahead", "per_batch"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_training_that_was_stopped_ends_with_the_same_bits(splits, tmp_path, precision, tensors):
    chosen = {"precision": precision, "tensors": tensors}
    whole = trained(job_of(splits, tmp_path / "whole", training=chosen))
    parted = job_of(splits, tmp_path / "parted", training=chosen)
    for _ in range(2):
        asked = itertools.chain([False] * 4, itertools.repeat(True))
        with pytest.raises(PreemptedError):
            trained(parted, should_stop=lambda asked=asked: next(asked))
    ended = trained(parted)
    assert ended.resumed_from_step
    assert ended.curve == whole.curve
    assert ended.metrics["val_loss"] == whole.metrics["val_loss"]


def test_preflight_passes_on_a_gpu_and_forecasts_its_memory(splits, tmp_path):
    result = run_preflight(preflight_job(splits, tmp_path, device="cuda", gpu_memory_gb={"large": 80.0}))
    assert result.device == "cuda"
    assert [trial.check for trial in result.trials if trial.status in ("fail", "error", "insufficient")] == []
    assert result.untried == ""
    assert result.memory is not None
    assert [gpu.fits for gpu in result.gpus] == [True]


@pytest.mark.parametrize(("backend", "size"), [("nccl", 1), ("gloo", 2)])
def test_ranks_on_a_gpu_train_as_one_process_does(splits, tmp_path, backend, size):
    use_case = changed_use_case(tmp_path / "toy", ("nn.Dropout(0.1)", "nn.Identity()"))
    one = trained(job_of(splits, tmp_path / "one", use_case=use_case))
    job = job_of(splits, tmp_path / "ranks", use_case=use_case, processes=size)
    file, script = write_job(job), Path(__file__).with_name("gpu_rank.py")
    with locked(Path(job.out), print):
        meeting = begin_ranks(Path(job.out)) / "meeting"
        loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
        numbers = {"LOCAL_RANK": "0", "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": "1"}
        ranks = [
            subprocess.Popen(
                [sys.executable, str(script), str(file), meeting.as_uri(), backend], cwd=ROOT,
                env=environment() | loopback | numbers | {"RANK": str(rank)},
            )
            for rank in range(size)
        ]  # fmt: skip
        for process in ranks:
            process.wait(120)
    ends = read_ends(Path(job.out))
    assert [(ends[rank].exit_code, ends[rank].told) for rank in range(size)] == [(0, None)] * size
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    assert losses(result) == pytest.approx(losses(one), abs=1e-5)
    assert critical(result) == []
