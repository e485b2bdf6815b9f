"""The demo after installation: wall seconds and memory of the first run, and of an identical second one.

Three fresh state folders; each runs train_flight_delays twice through the bare command. Memory is the sum of the
proportional set sizes (PSS) of the process tree, sampled ten times a second. Targets: first run at most 300 s (median),
second at most 30 s, 4 GB. A short run has one state folder, and judges the toy project's data without training.

    make bench NAME=demo             about 4 minutes on 2 cores; the tree must be committed
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from benchmarks.result import arguments, begin, finish
from benchmarks.toy_project import job_command, new_toy
from trainworthy.resources.settings import PRODUCT

REPEATS = 3
TARGETS = {"first_run_seconds": 300.0, "second_run_seconds": 30.0, "peak_pss_gb": 4.0}


def main() -> None:
    """Run all repeats and print the table."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    first, second, peaks = [], [], []
    for _ in range(1 if short else REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            command, environment = _toy(Path(folder)) if short else _flights(folder)
            for times in (first, second):
                seconds, peak = _run(command, environment)
                times.append(seconds)
                peaks.append(peak)
            print(f"first {first[-1]:.1f} s, second {second[-1]:.1f} s, peak {max(peaks) / 1e9:.2f} GB", flush=True)
    figures = {
        "first_run_seconds": statistics.median(first),
        "second_run_seconds": statistics.median(second),
        "peak_pss_gb": max(peaks) / 1e9,
    }
    finish("demo", figures, TARGETS, short=short)


def _flights(folder: str) -> tuple[list[str], dict[str, str]]:
    """The command of `make demo` on a fresh state folder, and its environment."""
    command = job_command("train_flight_delays", "-c", "use_cases/flight_delays/first_model.yaml")
    return command, {"TRAINWORTHY_VAR": folder}


def _toy(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The cheapest job of the smallest project: Dagster's process and a worker are in it all the same."""
    return job_command("validate_toy"), new_toy(folder)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, int]:
    """Wall seconds of one run and the peak of its tree's summed PSS in bytes. The run must end well."""
    started = time.perf_counter()
    process = psutil.Popen(
        command,
        cwd=PRODUCT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, _pss(process))
        time.sleep(0.1)
    seconds = time.perf_counter() - started
    assert process.returncode == 0, f"the run ended with exit code {process.returncode}"
    return seconds, peak


def _pss(process: psutil.Process) -> int:
    total = 0
    for one in (process, *_children(process)):
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


if __name__ == "__main__":
    main()
