"""Which rank is named of several that ended, and with which exit code."""

import signal

import pytest

from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG, EXIT_INTERNAL, EXIT_PREEMPTED, EXIT_RANK_LOST
from trainworthy.lifecycle.protocol.ranks import RankEnd, RankPlace
from trainworthy.lifecycle.rank_ends import end_of_ranks

TOLD = {"problem": "ValueError: no", "value": "model.py:3", "fix": "mend it"}
LOST = {"problem": "Connection closed by peer", "value": None, "fix": "see the other ranks"}


def ended(exit_code, told=None, **states):
    return RankEnd(
        pid=7, host="here", exit_code=exit_code, told=told, states={int(k[1:]): v for k, v in states.items()}
    )


def at(step, phase):
    return RankPlace(pid=7, step=step, phase=phase, seconds=1.0)


def told_of(*known):
    """As end_of_ranks, of an end that something is told of."""
    code, told = end_of_ranks(*known)
    assert told is not None
    return code, told


def test_a_good_end_tells_nothing():
    assert end_of_ranks({0: ended(0), 1: ended(0)}, {}, 2) == (0, None)


def test_a_killed_rank_is_guilty_and_not_those_that_lost_it():
    code, told = told_of({0: ended(EXIT_RANK_LOST, LOST), 2: ended(-signal.SIGKILL)}, {2: at(9, "losses")}, 3)
    assert (code, told["rank"]) == (-signal.SIGKILL, 2)
    assert "rank 2 of 3" in told["problem"]
    assert "SIGKILL" in told["problem"]
    assert "update 9" in told["problem"]


@pytest.mark.parametrize(("others", "named"), [((EXIT_RANK_LOST, LOST), True), ((EXIT_BAD_INPUT, TOLD), False)])
def test_an_error_is_told_with_its_rank_unless_all_met_it(others, named):
    code, told = told_of({0: ended(*others), 1: ended(EXIT_BAD_INPUT, TOLD)}, {}, 2)
    assert code == EXIT_BAD_INPUT
    assert told["value"] == "model.py:3"
    assert told["problem"] == ("rank 1 of 2: ValueError: no" if named else "ValueError: no")


def test_of_a_hang_the_rank_that_is_furthest_behind_is_guilty():
    places = {0: at(9, "losses"), 1: at(9, "losses"), 2: at(9, "forward")}
    ends = {0: ended(EXIT_HANG, LOST), 2: ended(-signal.SIGKILL)}
    code, told = told_of(ends, places, 3, {2: 'File "model.py", line 3 in forward'})
    assert (code, told["rank"]) == (EXIT_HANG, 2)
    assert told["value"] == 'File "model.py", line 3 in forward'


def test_of_ranks_that_are_equally_far_a_stopped_one_is_guilty():
    places = {0: at(9, "backward"), 1: at(9, "backward")}
    code, told = told_of({0: ended(EXIT_HANG, LOST, r1="stopped")}, places, 2)
    assert (code, told["rank"]) == (EXIT_HANG, 1)
    assert "SIGSTOP" in told["problem"]
    code, told = told_of({0: ended(EXIT_HANG, LOST, r1="sleeping")}, places, 2)
    assert (code, told["rank"]) == (EXIT_HANG, None)
    assert "all 2 ranks" in told["problem"]


def test_of_several_nodes_each_rank_is_told_with_its_node_and_host():
    hosts = ["alpha", "beta"]
    killed = {0: ended(EXIT_RANK_LOST, LOST), 1: ended(EXIT_RANK_LOST, LOST), 3: ended(-signal.SIGKILL)}
    _, told = told_of(killed, {}, 4, None, hosts)
    assert told["problem"].startswith("rank 3 of 4 (node 1 on beta, process 7) was killed by SIGKILL")
    _, told = told_of({1: ended(EXIT_BAD_INPUT, TOLD)}, {}, 4, None, hosts)
    assert told["problem"] == "rank 1 of 4 (node 0 on alpha): ValueError: no"
    places = {0: at(9, "losses"), 1: at(9, "losses"), 2: at(9, "forward"), 3: at(9, "losses")}
    _, told = told_of({0: ended(EXIT_HANG, LOST)}, places, 4, None, hosts)
    assert told["problem"].startswith("rank 2 of 4 (node 1 on beta) hangs in the rows")


@pytest.mark.parametrize("seen", [{0: ended(EXIT_RANK_LOST, LOST)}, {0: ended(EXIT_HANG, LOST)}, {0: ended(-15)}])
def test_node_that_left_no_word_is_guilty_unless_another_rank_is_known_to_be(seen):
    code, told = told_of(seen, {}, 4, None, ["alpha", "beta"], [1])
    if seen[0].exit_code == -15:
        assert (code, told["rank"]) == (-15, 0)
        return
    assert (code, told["rank"]) == (-signal.SIGKILL, 2)
    assert told["problem"].startswith("rank 2, 3 of 4 (node 1 on beta) left no word")


def test_ranks_of_several_nodes_that_lost_each_other_go_on_as_after_a_hang():
    ends = {rank: ended(EXIT_RANK_LOST, LOST) for rank in range(2)}
    code, told = told_of(ends, {}, 2, None, ["alpha", "beta"])
    assert code == EXIT_HANG
    assert "connection between the nodes broke" in told["problem"]


def test_asked_to_end_is_no_error_and_ranks_without_a_word_are():
    assert end_of_ranks({0: ended(EXIT_PREEMPTED, TOLD), 1: ended(EXIT_PREEMPTED)}, {}, 2) == (EXIT_PREEMPTED, TOLD)
    code, told = told_of({0: ended(EXIT_RANK_LOST, LOST)}, {0: at(3, "order")}, 2)
    assert code == EXIT_INTERNAL
    assert "rank 1 of 2" in told["problem"]
