"""Two nodes that have nothing but a cable and a storage in common: each agent and its ranks in a network of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked_ranks import train_by_ranks
from network_namespaces import Machine, ip, two_machines
from test_ranks import job_of, losses
from toy_jobs import ROOT, changed_use_case, environment, error_of, write_job

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_PREEMPTED
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.rank_files import read_places

pytestmark = pytest.mark.slow
SLOW = ("    def forward(self, inputs):\n", "    def forward(self, inputs):\n        import time; time.sleep(0.02)\n")
SECONDS = 120
PORT = 29_431


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    with two_machines() as made:
        yield made


@pytest.fixture(scope="module")
def use_case(tmp_path_factory) -> Path:
    return changed_use_case(tmp_path_factory.mktemp("slow") / "toy", SLOW)


def job(splits: Path, out: Path, use_case: Path, **fields: Any) -> TrainJob:
    return job_of(splits, out, use_case, training={"epochs": 8, "checkpoint_every_steps": 5}, **fields)


@contextlib.contextmanager
def started(
    job: TrainJob, machines: tuple[Machine, Machine], before: tuple[str, ...] = ()
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The agents of both nodes; `before` is run on the second one in its place, and has to run it."""
    path, endpoint = write_job(job), f"{machines[0].address}:{PORT}"
    (Path(job.out) / "error.json").unlink(missing_ok=True)
    agents = []
    with contextlib.ExitStack() as opened:
        for number, machine in enumerate(machines):
            command = (sys.executable, "-m", "trainworthy.lifecycle.torchrun", "--job", str(path), "--nodes", "2")
            command += ("--node-rank", str(number), "--endpoint", endpoint)
            given = machine.command(*(before if number else ()), *command)
            agents.append(opened.enter_context(subprocess.Popen(given, cwd=ROOT, env=environment())))
            opened.callback(agents[-1].kill)
        yield agents


def ended(agents: list[subprocess.Popen[bytes]]) -> list[int]:
    return [agent.wait(SECONDS) for agent in agents]


def trained(job: TrainJob) -> TrainResult:
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    return result


def at_step(job: TrainJob, step: int, do: Callable[[dict[int, int]], None]) -> None:
    """Do something with the process numbers of the ranks once all have come so far."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        places = read_places(Path(job.out))
        if len(places) == 2 and all(place.step >= step for place in places.values()):
            do({rank: place.pid for rank, place in places.items()})
            return
        time.sleep(0.02)
    raise AssertionError("the ranks did not come so far")


def left_over(job: TrainJob) -> list[str]:
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return [" ".join(command) for command in found if any(job.out in part for part in command)]


def test_two_nodes_train_as_two_ranks_of_one_to_the_bit_and_open_no_other_port(splits, use_case, machines, tmp_path):
    one = train_by_ranks(job(splits, tmp_path / "one", use_case))
    several = job(splits, tmp_path / "two", use_case)
    listening: dict[int, set[str]] = {}

    def look(pids: dict[int, int]) -> None:
        listening.update({rank: machines[rank].listening(pid) for rank, pid in pids.items()})

    with started(several, machines) as agents:
        at_step(several, 3, look)
        assert ended(agents) == [0, 0]
    two = trained(several)
    assert two.parameters_sha256 == one.parameters_sha256
    assert losses(two.curve) == losses(one.curve)
    assert listening == {number: {machine.address} for number, machine in enumerate(machines)}


def test_a_killed_node_is_named_and_the_training_goes_on_to_the_same_end(splits, use_case, machines, tmp_path):
    """A killed rank: tests/resources/test_nodes_launched.py."""
    quiet = train_by_ranks(job(splits, tmp_path / "quiet", use_case))
    killed = job(splits, tmp_path / "killed", use_case)

    def kill(pids: dict[int, int]) -> None:
        agent = psutil.Process(pids[1]).parent()
        assert agent is not None
        for process in (agent, psutil.Process(pids[1])):
            process.kill()

    with started(killed, machines) as agents:
        at_step(killed, 8, kill)
        assert ended(agents)[0] == 128 + signal.SIGKILL
        told = error_of(killed)
        assert told["rank"] == 1
        assert told["problem"].startswith(f"rank 1 of 2 (node 1 on {os.uname().nodename}")
        assert "left no word" in told["problem"]
        assert left_over(killed) == []
    with started(killed, machines) as agents:
        assert ended(agents) == [0, 0]
    assert trained(killed).resumed_from_step > 0
    assert trained(killed).parameters_sha256 == quiet.parameters_sha256


def test_first_node_that_is_killed_whole_leaves_nobody_on_the_other(splits, use_case, machines, tmp_path):
    killed = job(splits, tmp_path / "killed", use_case)

    def kill(pids: dict[int, int]) -> None:
        agent = psutil.Process(pids[0]).parent()
        assert agent is not None
        agent.kill()

    with started(killed, machines) as agents:
        at_step(killed, 8, kill)
        codes = ended(agents)
        assert codes[0] == -signal.SIGKILL
        assert codes[1] > 0
        assert left_over(killed) == []


def test_first_agent_that_is_asked_to_end_lets_all_write_the_checkpoint(splits, use_case, machines, tmp_path):
    asked = job(splits, tmp_path / "asked", use_case)
    with started(asked, machines) as agents:
        at_step(asked, 8, lambda pids: os.kill(psutil.Process(pids[0]).ppid(), signal.SIGTERM))
        assert ended(agents) == [EXIT_PREEMPTED] * 2
    with started(asked, machines) as agents:
        assert ended(agents) == [0, 0]
    assert trained(asked).resumed_from_step >= 8


def test_a_cut_cable_ends_both_nodes_and_names_the_one_that_is_out_of_reach(splits, use_case, machines, tmp_path):
    cut, (first, _) = job(splits, tmp_path / "cut", use_case, collective_timeout_seconds=8.0), machines
    try:
        with started(cut, machines) as agents:
            at_step(cut, 8, lambda pids: ip("-n", first.name, "link", "set", first.device, "down"))
            assert ended(agents)[0] == 128 + signal.SIGKILL
            assert error_of(cut)["problem"].startswith("rank 1 of 2 (node 1 on ")
            assert left_over(cut) == []
    finally:
        ip("-n", first.name, "link", "set", first.device, "up")


def test_a_rank_with_other_code_is_refused(splits, use_case, machines, tmp_path):
    other = changed_use_case(tmp_path / "other", SLOW, ("SHOPS =", "OTHER = 1\nSHOPS ="))
    refused = job(splits, tmp_path / "out", use_case)
    # Each namespace of `ip netns exec` has mounts of its own: the same path shows other files there.
    mounted = ("sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", str(other), str(use_case))
    with started(refused, machines, mounted) as agents:
        assert ended(agents)[0] == EXIT_BAD_INPUT
    told = error_of(refused)
    assert told["problem"].endswith("rank 1 of 2 would train something else than the first")
    assert json.dumps(told).count("code of the use case: ") == 1
