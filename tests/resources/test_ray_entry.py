"""The entry of a training over several nodes of Ray, by a Ray that is played: how it waits, holds and ends them."""

import json
import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends import ray_entry, ray_nodes
from trainworthy.resources.backends.meeting import absent, prepare
from trainworthy.resources.backends.on_node import NodeEnd, read_end
from trainworthy.resources.backends.ray_jobs import NO_MEETING, NO_NODES, JobSnapshot, end_without_word

LOST_NODE = "Task failed because the node it was running on is dead or unavailable."


class Played:
    """A Ray whose group is there after some looks, and whose tasks end as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, held_after: int = 1) -> None:
        self.folder, self.looks, self.held_after, self.removed = folder, 0, held_after, False
        self.ends, self.does = dict[int, int | Exception](), dict[int, Callable[[], object]]()
        self.asked: dict[str, Any] = {}
        self.error = type("RayTaskError", (Exception,), {})
        modules = {
            "ray": {"init": lambda **_: None, "remote": lambda function: self, "wait": self.wait, "get": self.get,
                    "nodes": list},
            "ray.util": {"placement_group": self.group, "remove_placement_group": self.remove,
                         "placement_group_table": lambda group: {"bundles_to_node_id": {0: "a", 1: "b"}}},
            "ray.util.scheduling_strategies": {"PlacementGroupSchedulingStrategy": lambda group, number: number},
            "ray.exceptions": {"RayTaskError": self.error},
        }  # fmt: skip
        for name, members in modules.items():
            module = types.ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(ray_entry, "LOOK_SECONDS", 0.0)
        # Its lock is held until the process is gone, which is not to be this one.
        monkeypatch.setattr(ray_entry.os, "dup", lambda descriptor: descriptor)

    def group(self, bundles: list[dict[str, float]], strategy: str) -> "Played":
        self.asked = {"bundles": bundles, "strategy": strategy}
        return self

    def remove(self, group: object) -> None:
        self.removed = True

    def _look(self) -> None:
        self.looks += 1
        assert self.looks < 1000, "it waits for ever"
        self.does.pop(self.looks, lambda: None)()

    def options(self, scheduling_strategy: int, **given: Any) -> "Played":
        self.asked[f"task {scheduling_strategy}"] = given
        return self

    def remote(self, command: list[str], number: int, *output: str) -> int:
        return number

    def wait(self, tasks: Any, timeout: float | None = None) -> Any:
        """Of tasks; and of the group, which is given the seconds alone."""
        self._look()
        if isinstance(tasks, float):
            return self.looks >= self.held_after
        done = [task for task in tasks if task in self.ends]
        return done, [task for task in tasks if task not in done]

    def get(self, task: int) -> int:
        end = self.ends[task]
        if isinstance(end, Exception):
            raise end
        return end

    def run(self, meet: float = 1000.0, abandoned: float = 1000.0, grace: float = 1000.0) -> int:
        given = [
            "--folder", self.folder, "--nodes", 2, "--bundle", '{"CPU":1,"local-2cpu":1}', "--grace", grace,
            "--abandoned", abandoned, "--meet", meet, "--", "python",
        ]  # fmt: skip
        return ray_entry.main([str(one) for one in given])


@pytest.fixture
def played(tmp_path, monkeypatch):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    prepare(folder := tmp_path / "ray" / "id", 2)
    for place in (folder, folder / "0", folder / "1"):
        (place / "wanted").write_text("1")
    yield Played(monkeypatch, folder)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def leaves(played: Played, number: int, code: int, seen: str = "", cpu_seconds: float = 0.0) -> None:
    said = {"exit_code": code, "seen": seen, "cpu_seconds": cpu_seconds}
    (played.folder / str(number) / "end.json").write_text(json.dumps(said))
    played.ends[number] = code


def meet(played: Played) -> None:
    """Both nodes are there, and have met."""
    for number in (0, 1):
        (played.folder / str(number) / "alive").write_text("1")
        (played.folder / str(number) / "address").write_text(f"127.0.0.1 t{number} t0\n")
    (played.folder / "0" / "address").write_text("127.0.0.1 t0\n")
    (played.folder / "endpoint").write_text("127.0.0.1 4000 t0 t1\n")
    assert absent(played.folder, 2) == []


def wanted(played: Played) -> list[bool]:
    return [(played.folder / name / "wanted").exists() for name in (".", "0", "1")]


def test_entry_holds_all_nodes_by_a_bundle_on_each_and_leaves_one_end(played):
    played.held_after = 3
    used = {0: 20.0, 1: 3.5}
    played.does = {4: lambda: meet(played), 6: lambda: [leaves(played, at, 0, "", used[at]) for at in used]}
    assert played.run() == 0
    assert played.asked["bundles"] == [{"CPU": 1, "local-2cpu": 1}] * 2
    assert played.asked["strategy"] == "STRICT_SPREAD"
    own = {"num_cpus": 1, "num_gpus": 0, "resources": {"local-2cpu": 1}, "max_retries": 0}
    assert (played.asked["task 0"], played.asked["task 1"]) == (own, own)
    assert read_end(played.folder) == NodeEnd(exit_code=0, cpu_seconds=23.5)
    assert (played.folder / "held").exists()
    assert (played.folder / "alive").exists()
    assert played.removed


@pytest.mark.parametrize("way", ["cancel", "SIGTERM"])
def test_entry_that_waits_for_nodes_ends_when_it_is_asked_to(played, way):
    played.held_after = 10_000
    cancel = (played.folder / "wanted").unlink
    played.does = {3: cancel if way == "cancel" else lambda: os.kill(os.getpid(), signal.SIGTERM)}
    assert played.run() == 75
    end = read_end(played.folder)
    assert end is not None
    assert end.exit_code == -signal.SIGTERM
    assert ("no longer wanted" if way == "cancel" else "stopped by somebody else") in end.seen
    assert not (played.folder / "held").exists()
    assert played.removed


def test_entry_whose_nodes_never_come_ends_by_rays_own_limit(played, monkeypatch, capsys):
    monkeypatch.setenv("RAY_JOB_START_TIMEOUT_SECONDS", "0.01")
    played.held_after = 10_000_000
    monkeypatch.setattr(played, "_look", lambda: None)
    assert played.run() == NO_NODES
    assert '2 nodes, each with {"CPU":1,"local-2cpu":1}' in capsys.readouterr().err
    assert read_end(played.folder) is None
    assert played.removed


def test_node_that_refuses_before_they_have_met_ends_the_other(played):
    def refuse() -> None:
        (played.folder / "0" / "alive").write_text("1")
        played.ends[1] = 65

    played.does = {3: refuse, 6: lambda: leaves(played, 0, 143, "asked")}
    assert played.run() == 1
    assert wanted(played) == [True, False, False]
    end = read_end(played.folder)
    assert end is not None
    assert (end.exit_code, end.seen) == (65, "it was node 1 of 2")


def test_node_that_is_lost_after_they_have_met_lets_the_first_one_judge(played):
    def lose() -> None:
        played.ends[1] = RuntimeError("The worker died")

    played.does = {3: lambda: meet(played), 5: lose, 9: lambda: leaves(played, 0, 65)}
    assert played.run() == 1
    assert wanted(played) == [True, True, True]
    assert read_end(played.folder) == NodeEnd(exit_code=65)


def test_first_node_that_does_not_judge_in_time_is_ended_with_the_cause_that_ray_knows(played, monkeypatch):
    monkeypatch.setattr(ray_nodes, "JUDGE_SECONDS", 0.0)
    rows = [{"NodeID": "b", "DeathReason": 2, "DeathReasonMessage": "missed heartbeats"}]
    monkeypatch.setattr(sys.modules["ray"], "nodes", lambda: rows)

    def lose() -> None:
        played.ends[1] = RuntimeError(LOST_NODE)

    played.does = {3: lambda: meet(played), 5: lose, 9: lambda: leaves(played, 0, 143, "asked")}
    assert played.run() == 1
    assert wanted(played) == [True, False, False]
    end = read_end(played.folder)
    assert end is not None
    assert (end.exit_code, end.seen) == (-9, "node 1 of 2: its node died; Ray said: missed heartbeats")


def test_nodes_that_never_end_after_they_were_asked_are_given_up(played, monkeypatch):
    monkeypatch.setattr(ray_entry, "MARGIN_SECONDS", 0.0)
    played.does = {3: lambda: meet(played), 5: (played.folder / "wanted").unlink}
    assert played.run(grace=0.0) == 1
    assert wanted(played) == [False, False, False]
    end = read_end(played.folder)
    assert end is not None
    assert "no longer wanted" in end.seen


def test_nodes_that_are_held_and_do_not_meet_are_ended_with_who_is_missing(played, capsys):
    def ends() -> None:
        for number in (0, 1):
            (played.folder / str(number) / "alive").write_text("1")
            leaves(played, number, 143, "asked")

    played.does = {5: ends}
    assert played.run(meet=0.0) == NO_MEETING
    assert wanted(played) == [True, False, False]
    assert read_end(played.folder) is None
    words = capsys.readouterr().err.strip().splitlines()[-1]
    assert "no address of node 0 of 2, node 1 of 2" in words
    job = JobSnapshot("i", "FAILED", exit_code=NO_MEETING, message="exit code 68")
    with pytest.raises(BackendError, match="did not find each other") as refused:
        end_without_word(job, True, words)
    assert refused.value.value == words


def test_entry_of_another_version_than_its_cluster_says_so_in_one_line(played, monkeypatch, capsys):
    def init(**_: object) -> None:
        raise RuntimeError("Version mismatch: the cluster:\n    Python: 3.11.7\nThis process:\n    Python: 3.11.9\n")

    monkeypatch.setattr(sys.modules["ray"], "init", init)
    with pytest.raises(SystemExit) as ended:
        played.run()
    assert ended.value.code == "Version mismatch: the cluster: Python: 3.11.7 This process: Python: 3.11.9"


def test_what_kept_a_task_from_beginning_is_the_entrys_last_line(played, capsys):
    played.ends = {0: 143, 1: played.error("Traceback\n  ray::run_on_node\nFileNotFoundError: /var/stdout")}
    assert played.run() == 1
    assert capsys.readouterr().err.strip().splitlines()[-1] == "node 1 of 2: FileNotFoundError: /var/stdout"
    assert read_end(played.folder) is None
