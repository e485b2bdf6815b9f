"""The documented scripts of Lightning and transformers by two processes that torchrun has started."""

import subprocess
import sys
from pathlib import Path

import own_trainers
import pytest
import toy_jobs

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.protocol.results import TrainResult

# As docs/how-to/own-trainer.md says.
CHANGES = {
    "Lightning": (
        ("        devices=1,\n", "        devices=session.processes,\n        strategy='ddp',\n"),
        ("batch_size=session.batch_size,", "batch_size=session.batch_size // session.processes,"),
    ),
    "transformers": (
        ("batch_size=session.batch_size", "batch_size=session.batch_size // session.processes"),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_framework_trains_by_two_processes_as_by_one(splits, tmp_path, name):
    own_trainers.needs(name)
    results = {}
    for size, module in ((1, "worker"), (2, "torchrun")):
        changes = CHANGES[name] if size > 1 else ()
        folder = own_trainers.use_case(tmp_path / f"toy{size}", own_trainers.documented(name), *changes)
        job = own_trainers.job(splits, folder, tmp_path / f"{size}", "pilot", processes=size)
        command = [sys.executable, "-m", f"trainworthy.lifecycle.{module}", "--job", str(toy_jobs.write_job(job))]
        done = subprocess.run(
            command, env=toy_jobs.environment(), stderr=subprocess.PIPE, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        found = read_result(Path(job.out), job)
        assert isinstance(found, TrainResult)
        results[size] = found
    one, two = results[1], results[2]
    assert two.steps == one.steps
    assert two.trainer is not None
    assert two.trainer.gradients
    assert two.trainer.checkpoints > 0
    if name == "transformers":
        kept = max((tmp_path / "2" / "checkpoints").iterdir()) / "files" / "checkpoint"
        assert {"rng_state_0.pth", "rng_state_1.pth", "model.safetensors"} <= {path.name for path in kept.iterdir()}
    assert [alarm for alarm in two.alarms if alarm.severity == "critical"] == []
    # Rows and dropout are drawn otherwise.
    assert two.metrics["val_loss"] == pytest.approx(one.metrics["val_loss"], abs=0.03)
