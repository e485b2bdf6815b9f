"""Trains a job by several nodes, as a run's process does: `python node_starter.py JOB NODES`.

It ends as the run would: at an interrupt nothing of the training is left. Signs of life are given every second, and
another node goes on without one for five.
"""

import sys
from pathlib import Path

from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.resources.backends import on_node, signs
from trainworthy.resources.backends.nodes import nodes_backend
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

if __name__ == "__main__":
    signs.BEAT_SECONDS, on_node.ABANDONED_SECONDS = 1.0, 5.0
    job = JobFile.model_validate_json(Path(sys.argv[1]).read_bytes()).job
    assert isinstance(job, TrainJob)
    backend = nodes_backend(int(sys.argv[2]))
    result = supervise(job, lambda: run_worker(job, backend=backend), print)
    assert isinstance(result, TrainResult)
    for attempt in result.attempts:
        print(f"{attempt.cause}: {attempt.told}")
