"""What is read of /proc and control groups, on folders made as kernels make them, and on this machine."""

import os
import sys
from pathlib import Path

import pytest

from trainworthy.lifecycle.memory_limit import memory_limit_bytes
from trainworthy.lifecycle.processor import usable_cores
from trainworthy.resources.memory_usage import MemoryWatch, kernel_kills


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A root with the machine's own count 7 and 8 GiB, these control groups and these files."""
    proc = {
        "proc/self/cgroup": groups,
        "proc/vmstat": "pgfault 1\noom_kill 7\n",
        "proc/meminfo": "MemTotal: 8388608 kB\n",
    }
    for name, text in (proc | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


VERSION_2 = {"memory.events": "low 0\noom 3\noom_kill 2\n", "memory.max": "4294967296\n"}
VERSION_1 = {"memory.oom_control": "oom_kill_disable 0\noom_kill 2\n", "memory.limit_in_bytes": "4294967296\n"}


@pytest.mark.parametrize(
    ("groups", "folder", "files"),
    [
        ("0::/slice/job\n", "sys/fs/cgroup/slice/job", VERSION_2),
        # In a container the group's folder is the mount itself.
        ("0::/\n", "sys/fs/cgroup", VERSION_2),
        ("4:cpu:/\n3:hugetlb,memory:/job\n0::/\n", "sys/fs/cgroup/memory/job", VERSION_1),
        ("3:memory:/job\n", "sys/fs/cgroup/memory", VERSION_1),
    ],
)
def test_own_control_group_is_read_before_the_machine(tmp_path, groups, folder, files):
    root = machine(tmp_path, groups, {f"{folder}/{name}": text for name, text in files.items()})
    assert kernel_kills(root) == (2, "this control group")
    assert memory_limit_bytes(root) == 4 * 2**30


def test_machine_counts_where_no_control_group_does(tmp_path):
    root = machine(tmp_path, "0::/\n", {"sys/fs/cgroup/memory.max": "max\n"})
    assert kernel_kills(root) == (7, "this machine")
    assert memory_limit_bytes(root) == 8 * 2**30


def test_nothing_known_stays_unknown(tmp_path):
    watch = MemoryWatch(tmp_path)
    watch.look(1)
    seen = watch.seen()
    assert (seen.kernel_kills, seen.peak_bytes, seen.limit_bytes, seen.words) == (None, None, None, "")


def test_kills_are_counted_from_the_watchs_making_on(tmp_path):
    root = machine(tmp_path, "0::/\n", {"sys/fs/cgroup/memory.events": "oom_kill 2\n"})
    watch = MemoryWatch(root)
    assert watch.seen().kernel_kills == 0
    (root / "sys/fs/cgroup/memory.events").write_text("oom_kill 3\n")
    assert watch.seen().kernel_kills == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_own_peak_on_this_machine_is_between_nothing_and_the_limit():
    watch = MemoryWatch()
    watch.look(os.getpid())
    seen = watch.seen()
    assert seen.limit_bytes is not None
    assert seen.peak_bytes is not None
    assert 10 * 2**20 < seen.peak_bytes < seen.limit_bytes


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/slice/job\n", {"sys/fs/cgroup/slice/job/cpu.max": "250000 100000\n"}, 3),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 5),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "900000 100000\n"}, 5),
        (
            "4:cpu,cpuacct:/job\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            2,
        ),
        ("4:cpu,cpuacct:/job\n", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, 5),
        ("0::/\n", {}, 5),
    ],
)
def test_cores_are_those_that_a_container_has_and_not_its_machines(tmp_path, monkeypatch, groups, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)
    assert usable_cores(machine(tmp_path, groups, files)) == cores


def test_cores_of_this_machine_are_some():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
