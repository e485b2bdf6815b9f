"""What the agent of a node is told, and how it meets the others: without any rank."""

import argparse
import threading
from types import SimpleNamespace

import pytest
from forked_nodes import free_port

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG
from trainworthy.lifecycle.nodes import meeting
from trainworthy.lifecycle.nodes.agreement import agreed
from trainworthy.lifecycle.nodes.meeting import FirstIsGoneError, Meeting
from trainworthy.lifecycle.nodes.node import Node, add_arguments, interface_of, node_of
from trainworthy.lifecycle.protocol.ranks import ranks_of

TOLD = {"problem": "no GPU", "value": "torch", "fix": "buy one"}


def asked(*given: str) -> Node:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return node_of(parser.parse_args(given))


def test_node_is_what_its_arguments_say():
    assert asked() == Node()
    node = asked("--nodes", "2", "--node-rank", "1", "--endpoint", "[::1]:29400", "--interface", "lo")
    assert (node.number, node.host, node.port, node.endpoint) == (1, "::1", 29400, "[::1]:29400")
    assert (node.first, node.others) == (False, (0,))
    assert list(node.ranks(6)) == [3, 4, 5]
    assert [list(ranks_of(number, 3, 6)) for number in range(3)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    "given",
    [
        ("--nodes", "2", "--node-rank", "2", "--endpoint", "10.0.0.5:29400"),
        ("--nodes", "0"),
        ("--nodes", "2"),
        ("--nodes", "2", "--endpoint", "10.0.0.5"),
        ("--nodes", "2", "--endpoint", "10.0.0.5:none"),
        ("--nodes", "2", "--endpoint", "10.0.0.5:70000"),
    ],
)
def test_arguments_that_name_no_node_are_refused(given):
    with pytest.raises(SettingsError):
        asked(*given)


def test_ranks_talk_by_the_device_by_which_the_endpoint_is_reached_or_the_named_one():
    assert interface_of(Node(1, 2, "127.0.0.1", 29400)) == "lo"
    assert interface_of(Node(1, 2, "10.0.0.5", 29400, interface="lo")) == "lo"
    with pytest.raises(SettingsError, match="no such network device") as refused:
        interface_of(Node(1, 2, "10.0.0.5", 29400, interface="eth99"))
    assert "lo" in refused.value.fix


def test_answers_of_all_nodes_are_one_error():
    node = Node(0, 3, "10.0.0.5", 29400)
    assert agreed({0: None, 1: None, 2: None}, node, 9.0) == (0, None)
    code, told = agreed({0: None, 2: None}, node, 9.0)
    assert code == EXIT_HANG
    assert told is not None
    assert told["problem"] == "node 1 of 3 did not come within 9 s"
    code, told = agreed({0: TOLD, 1: None, 2: {**TOLD, "problem": "other job", "value": None}}, node, 9.0)
    assert code == EXIT_BAD_INPUT
    assert told == {
        "problem": "node 0 of 3: no GPU; node 2 of 3: other job", "value": "torch", "fix": "buy one"
    }  # fmt: skip


def test_nodes_meet_agree_and_see_each_other_live_and_end(monkeypatch):
    port, about = free_port(), {"job_sha256": "a"}
    first = Meeting(Node(0, 2, "127.0.0.1", port), 5.0)
    other = Meeting(Node(1, 2, "127.0.0.1", port), 5.0)
    decided = []
    thread = threading.Thread(target=lambda: decided.append(other.answer(lambda asked: {"told": asked["job_sha256"]})))
    thread.start()
    answers = first.gather(about, 5.0)
    assert answers == {1: {"told": "a"}}
    first.decide({"told": TOLD}, answers)
    thread.join()
    assert decided == [{"told": TOLD}]
    clock = iter([10.0, 12.5, 20.0, 23.0, 24.0])
    monkeypatch.setattr(meeting, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert [first.silent_seconds(1), first.silent_seconds(1)] == [2.5, 10.0]
    other.beat()
    assert first.silent_seconds(1) == 1.0
    assert (first.how(1), other.how(0)) == ("", "")
    other.over("hang")
    assert first.how(1) == "hang"


def test_first_node_that_is_gone_is_told():
    port = free_port()
    first = Meeting(Node(0, 2, "127.0.0.1", port), 5.0)
    other = Meeting(Node(1, 2, "127.0.0.1", port), 5.0)
    del first
    with pytest.raises(FirstIsGoneError):
        other.wait_for("decision", 5.0)
