"""What it takes to train by several processes: until the first update, and a second, beside bare torchrun.

A transformer of at least 100 ms an update is trained by two processes: by ours (`compute.launcher: torchrun`), with
monitors, curve and checkpoints, and by a bare loop under torchrun, DistributedDataParallel with nothing beside. Both
make the same updates of the same rows, clip by the norm and have as many threads. Rounds take turns; a figure is the
median of the rounds' ratios. Seconds until the first update are from the command on, imports included; those of one
process, `local`, are beside them.

    make bench NAME=launchers         about six minutes on two idle cores
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.rank_jobs import rank_job, stamps
from benchmarks.result import arguments, begin, finish, hardware
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.resources.settings import PRODUCT

# Rows a second of ours to the bare loop's: at least 0.97. As an upper bound, seconds an update.
TARGETS = {"seconds_ratio": 1 / 0.97}
PROCESSES = 2
# Updates before which nothing is counted: kernels and the gradients' buckets are made.
WARM = 5


class Round(NamedTuple):
    """Seconds until the first forward pass that is trained on, and of an update, the median."""

    first: float
    update: float


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    begin(asked.short)
    rounds, updates, width = (1, 20, 32) if asked.short else (asked.rounds, 64, 192)
    found: dict[str, list[Round]] = {"bare": [], "ours": [], "local": []}
    with tempfile.TemporaryDirectory() as name:
        for number in range(rounds):
            for launcher, measured in found.items():
                processes = 1 if launcher == "local" else PROCESSES
                job = rank_job(Path(name), f"{launcher}-{number}", processes=processes, updates=updates, width=width)
                measured.append(_measured(job, _command(launcher, job)))
            latest = "  ".join(f"{which} {all_[-1].update * 1000:7.1f} ms" for which, all_ in found.items())
            print(f"round {number + 1} of {rounds}: {latest}", flush=True)
    ratios = [ours.update / bare.update for ours, bare in zip(found["ours"], found["bare"], strict=True)]
    print(f"\n{'':24}{'first update':>14}{'an update':>12}")
    for which, measured in found.items():
        first = statistics.median(one.first for one in measured)
        update = statistics.median(one.update for one in measured)
        print(f"{which:24}{first:12.2f} s{update * 1000:9.1f} ms")
    print(f"{'ours to bare, an update':24}{statistics.median(ratios):14.3f}   {min(ratios):.3f} to {max(ratios):.3f}")
    print(hardware())
    figures = {
        "seconds_ratio": statistics.median(ratios),
        "update_ms": statistics.median(one.update for one in found["ours"]) * 1000,
        **{f"first_update_seconds_{which}": statistics.median(o.first for o in all_) for which, all_ in found.items()},
    }
    finish("launchers", figures, TARGETS, short=asked.short)


def _command(launcher: str, job: TrainJob) -> list[str]:
    path = str(Path(job.out) / "job.json")
    if launcher == "bare":
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
        return [sys.executable, "-m", *torchrun, "-m", "benchmarks.rank_jobs", path]
    module = "worker" if launcher == "local" else "torchrun"
    return [sys.executable, "-m", f"trainworthy.lifecycle.{module}", "--job", path]


def _measured(job: TrainJob, command: list[str]) -> Round:
    """One run of the command to its end."""
    file = Path(job.out) / "stamps"
    variables = {
        "STAMPS": str(file), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join([str(PRODUCT / "src"), str(PRODUCT)]),
    }  # fmt: skip
    began = time.time()
    with (Path(job.out) / "told.txt").open("wb") as told:
        subprocess.run(command, env=os.environ | variables, cwd=PRODUCT, stdout=told, stderr=told, check=True)
    times = stamps(file)
    # Ours passes rows before the first update, too: what looks at loss and gradients (about ten passes).
    updates = [after - before for before, after in itertools.pairwise(times)][-_updates(job) + WARM :]
    return Round(times[0] - began, statistics.median(updates))


def _updates(job: TrainJob) -> int:
    from benchmarks.rank_jobs import ROWS

    return job.training.epochs * (ROWS // job.training.batch_size)


if __name__ == "__main__":
    main()
