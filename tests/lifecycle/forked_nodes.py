"""A training by several nodes as forks of this process: their agents are torchrun's, and their ranks are forks as well.

All are on this machine and talk over its loopback device; what differs from machines apart is in test_nodes_apart.py.
"""

import contextlib
import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from forked_ranks import SECONDS
from toy_jobs import write_job

from trainworthy.lifecycle import torchrun
from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.worker import main

NODES = 2


def train_by_nodes(job: TrainJob, variables: Mapping[str, str] | None = None) -> TrainResult:
    """The answer of the job's processes on NODES nodes; `variables` are added to their environment."""
    codes = run_nodes(job, variables)
    assert codes == [0] * NODES, (codes, told_of(job))
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    return result


def told_of(job: TrainJob) -> dict[str, Any]:
    """What was told of a bad end."""
    with contextlib.suppress(FileNotFoundError):
        return json.loads((Path(job.out) / "error.json").read_text())
    return {}


def run_nodes(
    job: TrainJob, variables: Mapping[str, str] | None = None, paths: Mapping[int, Path] | None = None,
    while_running: Callable[[list[int]], None] = lambda agents: None,
) -> list[int | None]:  # fmt: skip
    """How each node's agent ended; None of one that had to be killed. `paths` are job files of single nodes."""
    (Path(job.out) / "error.json").unlink(missing_ok=True)
    path, endpoint = write_job(job), f"127.0.0.1:{free_port()}"
    forks = multiprocessing.get_context("fork")
    agents = [
        forks.Process(target=_agent, args=(number, (paths or {}).get(number, path), endpoint, variables or {}))
        for number in range(NODES)
    ]
    for agent in agents:
        agent.start()
    while_running([agent.pid or 0 for agent in agents])
    with _ended(agents):
        for agent in agents:
            agent.join(SECONDS)
        return [agent.exitcode for agent in agents]


@contextlib.contextmanager
def _ended(agents: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for agent in agents:
            agent.kill()
            agent.join()


def free_port() -> int:
    """A port of the loopback device that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def _agent(number: int, job: Path, endpoint: str, variables: Mapping[str, str]) -> None:
    import torch
    from torch.distributed.launcher import api

    launch = api.elastic_launch

    def forked(config: Any, entrypoint: Any) -> Any:
        assert entrypoint == sys.executable
        config.start_method = "fork"
        return launch(config, _rank)

    api.elastic_launch = forked  # pyright: ignore[reportAttributeAccessIssue]
    torch.set_num_threads(1)
    os.environ.update(variables, OMP_NUM_THREADS="1")
    given = ["--nodes", str(NODES), "--node-rank", str(number), "--endpoint", endpoint]
    os._exit(torchrun.main(["--job", str(job), *given]))


def _rank(*given: str) -> None:
    assert given[:2] == ("-m", "trainworthy.lifecycle.worker")
    if code := main(list(given[2:])):
        os._exit(code)
