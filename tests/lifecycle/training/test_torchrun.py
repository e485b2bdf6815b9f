"""torchrun starts the ranks of a training, and one that was killed costs the steps since the newest checkpoint."""

import os
import signal
import threading
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from toy_jobs import changed_use_case, spec_with, train_job

from trainworthy.lifecycle.artifact import load_artifact
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.rank_files import read_places
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

SLOW = ("    def forward(self, inputs):\n", "    def forward(self, inputs):\n        import time; time.sleep(0.02)\n")


@pytest.mark.slow
def test_a_killed_rank_is_named_and_the_training_goes_on_to_the_same_end(splits, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    spec = spec_with(training={"batch_size": 64, "epochs": 8, "checkpoint_every_steps": 5})
    use_case = changed_use_case(tmp_path / "toy", SLOW)
    jobs = [
        train_job(splits, tmp_path / name, "smoke", spec=spec, use_case=use_case, processes=2)
        for name in ("quiet", "killed")
    ]
    quiet = run_worker(jobs[0])
    assert isinstance(quiet, TrainResult)
    listening: list[str] = []
    killer = threading.Thread(target=_kill_second_rank, args=(Path(jobs[1].out), listening))
    killer.start()
    told: list[str] = []
    result = supervise(jobs[1], lambda: run_worker(jobs[1]), told.append)
    killer.join()
    assert isinstance(result, TrainResult)
    (attempt,) = result.attempts
    assert attempt.cause == "killed"
    assert "rank 1 of 2" in attempt.told
    assert result.parameters_sha256 == quiet.parameters_sha256
    commands = {process.pid: " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])}
    # torchrun's own meeting would be open to all machines.
    assert set(listening) == {"127.0.0.1"}
    assert not [pid for pid, command in commands.items() if jobs[1].out in command]


@pytest.mark.slow
def test_shards_become_the_artifact_that_one_process_makes(splits, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    use_case = changed_use_case(tmp_path / "toy", ("nn.Dropout(0.1)", "nn.Identity()"))
    answers, rows = {}, pd.read_parquet(splits / "benchmark.parquet")
    for sharding, processes in (("none", 1), ("fsdp", 2)):
        spec = spec_with(training={"epochs": 1})
        out = tmp_path / sharding
        job = train_job(splits, out, "full", spec=spec, use_case=use_case, processes=processes, sharding=sharding)
        result = run_worker(job)
        assert isinstance(result, TrainResult)
        answers[sharding] = load_artifact(Path(result.artifact or ""), result.artifact_sha256 or "")(rows)
    assert answers["fsdp"] == pytest.approx(answers["none"], abs=1e-5)


def _kill_second_rank(out: Path, listening: list[str]) -> None:
    """Once it has made some updates; `listening` gets the addresses at which torchrun's agent and the ranks listen."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        places = read_places(out)
        if len(places) == 2 and places[1].step >= 8:
            agent = psutil.Process(places[0].pid).parent()
            assert agent is not None
            for process in (agent, *agent.children()):
                listening += [found.laddr.ip for found in process.net_connections() if found.status == "LISTEN"]
            os.kill(places[1].pid, signal.SIGKILL)
            return
        time.sleep(0.02)
