"""How the other nodes of a training are named and reached, and what is told where they are not."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import BackendError, SettingsError
from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.nodes.node import Node
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.pipeline.doctor.machine import VARIABLES
from trainworthy.resources import settings
from trainworthy.resources.backends import nodes
from trainworthy.resources.backends.backend import Ended, Start
from trainworthy.resources.backends.choose import backend_of, launcher_problems
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.backends.nodes import NodesBackend, _with_memory, nodes_backend, script
from trainworthy.resources.backends.on_node import NodeEnd, lock_of
from trainworthy.resources.settings import NODE_ADDRESS, NODE_COMMAND, NODES
from trainworthy.resources.worker_process import run_worker


@pytest.fixture(autouse=True)
def named(monkeypatch):
    """Two other nodes, by ssh."""
    for name in (NODE_COMMAND, NODE_ADDRESS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(NODES, "alpha, beta,")


def compute(nodes: int = 3) -> ComputeSpec:
    return ComputeSpec(launcher="torchrun", processes=2 * nodes, nodes=nodes, sku="local-2cpu")


def start(folder: Path) -> Start:
    job = toy_jobs.train_job(folder, folder / "o u't", processes=2)
    return Start(job, Path(job.out) / "job.json", 0.0, {}, (1, 2), 5.0, False, 0)


def test_nodes_are_those_named_and_reached_by_ssh_unless_told_otherwise(monkeypatch):
    found = backend_of(compute())
    assert found == NodesBackend(("alpha", "beta"), ("ssh", "-o", "BatchMode=yes", "{host}"), "")
    assert found.name == LOCAL.name
    # No more than are asked for.
    assert nodes_backend(2).hosts == ("alpha",)
    monkeypatch.setenv(NODE_COMMAND, "ip netns exec '{host}'")
    monkeypatch.setenv(NODE_ADDRESS, "10.0.0.5")
    assert nodes_backend(2) == NodesBackend(("alpha",), ("ip", "netns", "exec", "{host}"), "10.0.0.5")
    assert nodes_backend(2)._command("alpha") == ["ip", "netns", "exec", "alpha"]
    assert backend_of(ComputeSpec(launcher="torchrun", processes=2, sku="local-2cpu")) is LOCAL


def test_all_that_is_set_wrong_is_told_before_anything_runs(monkeypatch):
    assert launcher_problems(compute()) == []
    monkeypatch.setenv(NODES, "-oProxyCommand=x")
    monkeypatch.setenv(NODE_COMMAND, "ssh node2")
    (problem,) = launcher_problems(compute())
    assert problem.where == "use_case.yaml: compute.launcher"
    for told in ("names 1 of the 2 beside this one", "names no host: -oProxyCommand=x", "has no {host}"):
        assert told in problem.problem
    assert "TRAINWORTHY_NODES=10.0.0.6,10.0.0.7" in problem.fix
    monkeypatch.setenv(NODE_COMMAND, "ssh '{host}")
    with pytest.raises(SettingsError, match="is no command: No closing quotation"):
        nodes_backend(2)


def test_script_for_a_shell_quotes_each_word(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "$(touch x)")
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "v a'r"))
    asked, folder = start(tmp_path), tmp_path / "o u't" / "nodes" / "1"
    given = script(asked, Node(1, 2, "10.0.0.5", 29400), folder)
    words = shlex.split(given)
    assert words[:2] == ["exec", "env"]
    assert {"OMP_NUM_THREADS=$(touch x)", f"TRAINWORTHY_VAR={tmp_path / chr(118)} a'r"} <= set(words)
    assert words[words.index("--job") + 1] == str(asked.path)
    assert words[-6:] == ["--nodes", "2", "--node-rank", "1", "--endpoint", "10.0.0.5:29400"]
    # A shell makes the same words of it.
    assert "'$(touch x)'" not in given.replace("'OMP_NUM_THREADS=$(touch x)'", "")


def test_command_that_ends_before_anything_began_there_is_told_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv(NODE_COMMAND, "sh -c 'echo no route to {host} >&2; exit 3' sh")
    monkeypatch.setenv(NODE_ADDRESS, "127.0.0.1")
    monkeypatch.setattr(nodes, "GONE_SECONDS", 1.0)
    job = toy_jobs.train_job(tmp_path, tmp_path / "out", processes=2)
    with pytest.raises(BackendError) as refused:
        run_worker(job, backend=nodes_backend(2), grace_seconds=1.0)
    assert refused.value.problem == "the command to node 1 (alpha) ended with 3 before anything began there"
    assert refused.value.value == "no route to alpha"
    monkeypatch.setenv(NODE_COMMAND, "no-such-program {host}")
    with pytest.raises(BackendError, match="the command to node 1 cannot be run"):
        run_worker(job, backend=nodes_backend(2), grace_seconds=1.0)


def test_address_that_is_not_this_machines_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(NODE_ADDRESS, "192.0.2.1")
    job = toy_jobs.train_job(tmp_path, tmp_path / "out", processes=2)
    with pytest.raises(SettingsError, match="the other nodes cannot meet here") as refused:
        run_worker(job, backend=nodes_backend(2))
    assert NODE_ADDRESS in refused.value.fix
    # A name that ssh alone knows.
    monkeypatch.delenv(NODE_ADDRESS)
    monkeypatch.setenv(NODES, "me@no-such-host.invalid")
    with pytest.raises(SettingsError, match="there is no way to no-such-host") as refused:
        run_worker(job, backend=nodes_backend(2))
    assert NODE_ADDRESS in refused.value.fix


def test_variables_of_settings_are_all_known_to_doctor():
    named = {value for value in vars(settings).values() if isinstance(value, str) and value.startswith("TRAINWORTHY_")}
    assert {NODES, NODE_COMMAND, NODE_ADDRESS} <= named <= set(VARIABLES)


def test_kill_for_memory_on_another_node_is_told_where_this_one_has_none():
    killed, here = MemorySeen(kernel_kills=1, counted_in="this control group"), MemorySeen(kernel_kills=0)
    others = [None, NodeEnd(exit_code=-9), NodeEnd(exit_code=-9, memory=killed)]
    assert _with_memory(Ended(-9, here), others).memory == killed
    mine = MemorySeen(kernel_kills=2)
    assert _with_memory(Ended(-9, mine), others).memory == mine


def test_earlier_start_is_no_longer_wanted_and_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "GONE_SECONDS", 0.2)
    asked = start(tmp_path)
    folder = Path(asked.job.out) / "nodes"
    (folder / "1-before").mkdir(parents=True)
    (folder / "1-before" / "wanted").write_text("1")
    told: list[str] = []
    nodes._end_earlier(folder, asked, 1, told.append)
    assert not folder.exists()
    assert told == []
    node = Node(1, 2)
    with locked(Path(asked.job.out), told.append, lock_of(node)):
        nodes._end_earlier(folder, replace(asked, grace_seconds=0.1), 1, told.append)
    assert told == ["an earlier start of this job is still on another node: it is ended first"]
