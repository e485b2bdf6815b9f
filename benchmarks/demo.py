"""The demo after installation: wall seconds and memory of the first run, and of an identical second one.

Three fresh state folders; each runs train_flight_delays twice through the bare command. Memory is the sum of the
proportional set sizes (PSS) of the process tree, sampled ten times a second. Targets: first run at most 300 s (median),
second at most 30 s, 4 GB.

    make bench NAME=demo             about 4 minutes on 2 cores; the tree must be committed
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

import psutil

from benchmarks.result import finish, hardware
from resources.settings import PROJECT

COMMAND = [
    sys.executable, "-m", "dagster", "job", "execute", "-m", "pipeline.definitions", "-j", "train_flight_delays",
    "-c", "use_cases/flight_delays/first_model.yaml",
]  # fmt: skip
REPEATS = 3


def main() -> None:
    """Run all repeats and print the table."""
    print(hardware())
    first, second, peaks = [], [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as var:
            for times in (first, second):
                seconds, peak = _run(var)
                times.append(seconds)
                peaks.append(peak)
            print(f"first {first[-1]:.1f} s, second {second[-1]:.1f} s, peak {max(peaks) / 1e9:.2f} GB", flush=True)
    figures = {
        "first_run_seconds": statistics.median(first),
        "second_run_seconds": statistics.median(second),
        "peak_pss_gb": max(peaks) / 1e9,
    }
    finish("demo", figures, {"first_run_seconds": 300.0, "second_run_seconds": 30.0, "peak_pss_gb": 4.0})


def _run(var: str) -> tuple[float, int]:
    """Wall seconds of one run and the peak of its tree's summed PSS in bytes. The run must end well."""
    started = time.perf_counter()
    process = psutil.Popen(
        COMMAND,
        cwd=PROJECT,
        env={**os.environ, "TRAINWORTHY_VAR": var},
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
