"""Which of several ranks brought a training to its end, and what is told of it: one error, on that rank's behalf.

Pure. torchrun's own summary names whoever was seen first, which is often a rank that only lost the guilty one.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from trainworthy.lifecycle.failure import EXIT_HANG, EXIT_INTERNAL, EXIT_PREEMPTED, EXIT_RANK_LOST
from trainworthy.lifecycle.protocol.ranks import Phase, RankEnd, RankPlace, ranks_of

_IN_WORDS: Mapping[Phase, str] = {
    "prepare": "while it prepares its rows or goes back to a checkpoint",
    "start": "while it waits for all ranks to start",
    "order": "before update {step}, which the first rank orders",
    "script": "in its script, after {step} updates",
    "forward": "in the rows or the forward pass of update {step}",
    "backward": "in the backward pass of update {step} or the exchange of its gradients",
    "losses": "at the exchange of update {step}'s losses",
    "verdict": "at the first rank's verdict on update {step}",
    "after": "after update {step}",
}
_HANG_FIX = (
    "look where it was: N.stacks.txt in ranks/ of the training's folder (ranks.before/ once it has gone on) has the "
    "stacks of rank N's threads; usual are rows that take long to read, a branch that one rank alone takes, and "
    "storage that is away; compute.collective_timeout_seconds is how long the others wait"
)
_LOST_FIX = (
    "look at that machine, at what started its agent there, and at the network between the nodes; then run again: it "
    "resumes"
)
_PART_FIX = (
    "let each process make the same calls in the same order, of session and of torch.distributed: look for a condition "
    "on the rank, or a loop that ends at another update"
)


class _Ranks:
    """So many ranks, and how each is called: with its node and host, where there are several nodes."""

    def __init__(self, size: int, hosts: Sequence[str]) -> None:
        self.size, self.nodes, self._hosts = size, max(1, len(hosts)), hosts

    def named(self, *ranks: int, process: int | None = None) -> str:
        """Ranks as a subject, with the one's process if it is known."""
        details = [] if self.nodes == 1 else list(dict.fromkeys(self.node(rank) for rank in ranks))
        details += [] if process is None else [f"process {process}"]
        details_text = f" ({', '.join(details)})" if details else ""
        return f"rank {', '.join(map(str, ranks))} of {self.size}{details_text}"

    def node(self, rank: int) -> str:
        number = rank * self.nodes // self.size
        return f"node {number} on {self._hosts[number]}"


def end_of_ranks(
    ends: Mapping[int, RankEnd], places: Mapping[int, RankPlace], size: int, lines: Mapping[int, str] | None = None,
    hosts: Sequence[str] = (), lost: Sequence[int] = (),
) -> tuple[int, dict[str, Any] | None]:  # fmt: skip
    """Exit code of the whole (negative: a signal) and what is told, None of a good end.

    `ends` are those known, by rank; of a rank that is missing there nothing is known but its place. `lines` are those
    of code at which ranks were when others had waited for too long. Of several nodes `hosts` has each one's name, and
    `lost` are those that said nothing of their ranks.
    """
    ranks = _Ranks(size, hosts)
    if len(ends) == size and all(end.exit_code == 0 for end in ends.values()):
        return 0, None
    waited = any(end.exit_code == EXIT_HANG for end in ends.values())
    if waited and not lost:
        # First, since the others are killed then.
        return _hang(ends, places, ranks, lines or {})
    killed = [] if waited else [rank for rank, end in ends.items() if end.exit_code < 0]
    if killed:
        return _killed(killed[0], ends[killed[0]], places, ranks)
    known = (0, EXIT_PREEMPTED, EXIT_RANK_LOST, EXIT_HANG)
    failed = [rank for rank, end in ends.items() if end.exit_code not in known and end.exit_code > 0]
    if failed:
        return _failed(failed, ends, ranks)
    if lost:
        return _lost(lost, ranks)
    preempted = [end for end in ends.values() if end.exit_code == EXIT_PREEMPTED]
    if preempted:
        return EXIT_PREEMPTED, preempted[0].told
    gone = sorted(set(range(size)) - set(ends))
    if not gone and ranks.nodes > 1:
        problem = "the ranks lost each other, and none of them had ended: the connection between the nodes broke"
        return EXIT_HANG, {"problem": problem, "value": _places(places), "fix": _LOST_FIX}
    who = f"{ranks.named(*gone)} left" if gone else "the ranks lost each other"
    return EXIT_INTERNAL, {
        "problem": f"{who} and no rank told why",
        "value": _places(places),
        "fix": "output.log in the folder of each rank has its last lines",
    }


def _lost(lost: Sequence[int], ranks: _Ranks) -> tuple[int, dict[str, Any]]:
    """Nodes that are gone with their agents, as if the kernel had killed all there is of them."""
    gone = [rank for node in lost for rank in ranks_of(node, ranks.nodes, ranks.size)]
    return -signal.SIGKILL, {
        "problem": f"{ranks.named(*gone)} left no word, nor did what had started them there",
        "value": None,
        "fix": _LOST_FIX,
        "rank": gone[0],
    }


def _killed(rank: int, end: RankEnd, places: Mapping[int, RankPlace], ranks: _Ranks) -> tuple[int, dict[str, Any]]:
    name = signal.Signals(-end.exit_code).name
    return end.exit_code, {
        "problem": f"{ranks.named(rank, process=end.pid)} was killed by {name}{_where(places.get(rank))}",
        "value": None,
        "fix": "look for a limit of memory, a scheduler or kill -9; then run again: it resumes",
        "rank": rank,
    }


def _failed(failed: list[int], ends: Mapping[int, RankEnd], ranks: _Ranks) -> tuple[int, dict[str, Any]]:
    """The lowest rank's error; where others met another, or none, it says whose it is."""
    first = ends[failed[0]]
    error = dict(
        first.told or {"problem": f"exited with code {first.exit_code} and left no word", "fix": "see its log"}
    )
    alike = [rank for rank in failed if (ends[rank].told or {}).get("problem") == error["problem"]]
    if len(alike) < ranks.size:
        error["problem"] = f"{ranks.named(failed[0])}: {error['problem']}"
    return first.exit_code, error | {"rank": failed[0]}


def _hang(
    ends: Mapping[int, RankEnd], places: Mapping[int, RankPlace], ranks: _Ranks, lines: Mapping[int, str]
) -> tuple[int, dict[str, Any]]:
    """The rank that is furthest behind is the guilty one; of several, one that the system had stopped."""
    states: dict[int, str] = {}
    for end in ends.values():
        states |= end.states
    behind = min((place.order for place in places.values()), default=None)
    last = [rank for rank, place in places.items() if place.order == behind]
    stopped = [rank for rank in last if states.get(rank) == "stopped"]
    guilty = stopped or (last if len(last) < ranks.size else [])
    if not guilty:
        where = _where(next(iter(places.values()), None))
        problem = (
            f"all {ranks.size} ranks wait for each other{where}: the connection between them is gone, or one's message"
        )
    else:
        state = ", and the system has stopped it (SIGSTOP)" if stopped else ""
        problem = f"{ranks.named(*guilty)} hangs{_where(places[guilty[0]])}{state}; the other ranks waited for it"
    rank, fix = guilty[0] if guilty else None, _HANG_FIX
    if rank is not None and rank in ends and ends[rank].exit_code == EXIT_HANG:
        # It waited as well, behind another call: its own error knows the line better than stacks of afterwards.
        lines = {other: line for other, end in ends.items() if (line := (end.told or {}).get("value"))}
        each = (
            f"rank {each_rank}{_where(places.get(each_rank))}{_at(lines.get(each_rank))}"
            for each_rank in sorted(places)
        )
        problem, fix = f"the ranks wait for each other: {'; '.join(each)}", _PART_FIX
    return EXIT_HANG, {
        "problem": problem, "value": None if rank is None else lines.get(rank), "fix": fix, "rank": rank,
    }  # fmt: skip


def _at(line: str | None) -> str:
    return f", at {line}" if line else ""


def _where(place: RankPlace | None) -> str:
    return "" if place is None else f" {_IN_WORDS[place.phase].format(step=place.step)}"


def _places(places: Mapping[int, RankPlace]) -> str:
    return "; ".join(f"rank {rank}{_where(place)}" for rank, place in places.items())
