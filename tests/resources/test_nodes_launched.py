"""The launcher trains by this machine and another, each a network namespace: it begins, ends, and nobody is left."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs
from forked_ranks import train_by_ranks
from network_namespaces import Machine, two_machines

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.ranks import RankPlace
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.rank_files import read_places

pytestmark = pytest.mark.slow
SLOW = ("    def forward(self, inputs):\n", "    def forward(self, inputs):\n        import time; time.sleep(0.02)\n")
SECONDS = 120
STARTER = Path(__file__).with_name("node_starter.py")
# As ssh: what it has started over there goes on when it is gone itself.
SSH = """
import subprocess, sys
sys.exit(subprocess.Popen(["ip", "netns", "exec", *sys.argv[1:]], start_new_session=True).wait())
"""


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    with two_machines() as made:
        yield made


def job_of(splits: Path, folder: Path) -> TrainJob:
    spec = toy_jobs.spec_with(training={"batch_size": 64, "epochs": 8, "checkpoint_every_steps": 5})
    use_case = folder / "toy"
    use_case = use_case if use_case.is_dir() else toy_jobs.changed_use_case(use_case, SLOW)
    return toy_jobs.train_job(splits, folder / "out", "smoke", spec=spec, use_case=use_case, processes=2)


@contextlib.contextmanager
def started(
    job: TrainJob, machines: tuple[Machine, Machine], command: str = "ip netns exec {host}"
) -> Iterator[subprocess.Popen[str]]:
    """The starter on the first machine; the other one is its node, by `command`."""
    first, second = machines
    named = {
        "TRAINWORTHY_NODES": second.name, "TRAINWORTHY_NODE_COMMAND": command,
        "TRAINWORTHY_NODE_ADDRESS": first.address,
    }  # fmt: skip
    given = first.command(sys.executable, str(STARTER), str(toy_jobs.write_job(job)), "2")
    environment = toy_jobs.environment() | named
    with subprocess.Popen(given, cwd=toy_jobs.ROOT, env=environment, stdout=subprocess.PIPE, text=True) as starter:
        try:
            yield starter
        finally:
            starter.kill()


def at_step(job: TrainJob, step: int, do: Callable[[dict[int, RankPlace]], object]) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        places = read_places(Path(job.out))
        if len(places) == 2 and all(place.step >= step for place in places.values()):
            do(places)
            return
        time.sleep(0.02)
    raise AssertionError("the ranks did not come so far")


def left_over(job: TrainJob, seconds: float) -> list[str]:
    """What of the job is there once that has had its time to go."""
    until = time.monotonic() + seconds
    while True:
        found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
        left = [" ".join(command) for command in found if any(job.out in part for part in command)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


def test_a_training_by_a_command_goes_on_after_a_killed_rank_to_the_bits_of_one_machine(splits, machines, tmp_path):
    one = train_by_ranks(job_of(splits, tmp_path).model_copy(update={"out": str(tmp_path / "one")}))
    job = job_of(splits, tmp_path)
    with started(job, machines) as starter:
        at_step(job, 8, lambda places: os.kill(places[1].pid, signal.SIGKILL))
        told, _ = starter.communicate(timeout=SECONDS)
        assert starter.returncode == 0
    assert "killed: the worker stopped: rank 1 of 2 (node 1 on " in told
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    assert result.resumed_from_step > 0
    assert result.parameters_sha256 == one.parameters_sha256
    assert left_over(job, 0) == []


def test_a_cancel_leaves_nobody_and_a_checkpoint(splits, machines, tmp_path):
    job = job_of(splits, tmp_path)
    with started(job, machines) as starter:
        at_step(job, 8, lambda places: starter.send_signal(signal.SIGINT))
        starter.wait(SECONDS)
        assert left_over(job, 0) == []
    assert list(Path(job.out).glob("checkpoints/*"))


def test_a_starter_that_is_killed_leaves_nobody_on_either_machine(splits, machines, tmp_path):
    job = job_of(splits, tmp_path)
    script = tmp_path / "ssh.py"
    script.write_text(SSH)
    with started(job, machines, f"{sys.executable} {script} {{host}}") as starter:
        at_step(job, 8, lambda places: starter.kill())
        starter.wait(SECONDS)
        assert left_over(job, 60) == []
    # What comes next is started beside nobody.
    with started(job, machines) as starter:
        starter.communicate(timeout=SECONDS)
        assert starter.returncode == 0
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    assert result.resumed_from_step > 0
