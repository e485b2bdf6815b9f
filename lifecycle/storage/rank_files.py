"""What each process of a training by several leaves in the training's folder: where it is, and how it ended.

Whoever looks after them reads it: a process that was killed, stopped or hangs in native code tells nothing itself.

Numbers of processes, the clock of places and stacks are a machine's own. Where the ranks are those of several nodes,
each looks at its own alone (`mine`, all if None), and leaves what it has seen in a file for the first.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import shutil
import signal
import socket
import struct
import time
from collections.abc import Container
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.ranks import PHASES, NodeReport, RankEnd, RankPlace
from trainworthy.lifecycle.storage.state import write_atomic

RANKS, BEFORE, OUTPUT = "ranks", "ranks.before", "output.log"
LAST_LINES = 60
# What ranks that wait for each other end apart, on a busy machine; and what a rank has to write its stacks.
LATE_SECONDS, STACKS_SECONDS = 3.0, 1.0
# Process, update, phase, passes of blocks in it, and since when, in seconds of the machine's monotonic clock.
_PLACE = struct.Struct("<qqqqd")


def rank_folder(out: Path, rank: int) -> Path:
    """Where a rank writes: the first into the training's own folder, each other into one below it."""
    return out if rank == 0 else out / RANKS / str(rank)


def begin_ranks(out: Path) -> Path:
    """An empty folder for what the ranks of an attempt leave; that of the attempt before is kept beside it."""
    folder, before = out / RANKS, out / BEFORE
    if folder.is_dir():
        shutil.rmtree(before, ignore_errors=True)
        folder.rename(before)
    folder.mkdir(parents=True)
    return folder


class PlaceFile:
    """Where this rank is, in memory that it shares with a file: two microseconds a change."""

    def __init__(self, out: Path, rank: int) -> None:
        path = out / RANKS / f"{rank}.place"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(_PLACE.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _PLACE.size)
        self.step, self.phase = 0, 0
        self.at(0, 0)

    def at(self, step: int, phase: int) -> None:
        """The rank begins this phase of this update."""
        self.step, self.phase, self._passes = step, phase, 0
        self._write()

    def on(self) -> None:
        """The rank goes on to the pass of another block in the same phase, for which it waits for the others."""
        self._passes += 1
        self._write()

    def _write(self) -> None:
        _PLACE.pack_into(self._memory, 0, os.getpid(), self.step, self.phase, self._passes, time.monotonic())


def read_places(out: Path, mine: Container[int] | None = None) -> dict[int, RankPlace]:
    """Where each rank of this machine was last, by rank. `seconds` are those until now."""
    places = {}
    for path in (out / RANKS).glob("*.place"):
        if mine is not None and int(path.stem) not in mine:
            continue
        with contextlib.suppress(OSError, struct.error, ValueError):
            pid, step, phase, passes, since = _PLACE.unpack(path.read_bytes())
            places[int(path.stem)] = RankPlace(
                pid=pid, step=step, phase=PHASES[phase], passes=passes, seconds=max(0.0, time.monotonic() - since)
            )
    return dict(sorted(places.items()))


def stacks_file(out: Path, rank: int) -> Path:
    """Where a rank writes the stacks of its threads when it is asked to."""
    return out / RANKS / f"{rank}.stacks.txt"


def dump_stacks_when_asked(out: Path, rank: int) -> None:
    """Let SIGUSR2 write the stacks of this rank's threads, whatever it does just then."""
    faulthandler.register(signal.SIGUSR2, stacks_file(out, rank).open("w"), all_threads=True)


def others_of(out: Path, mine: Container[int] | None = None) -> dict[int, Any]:
    """The other ranks' processes of this machine that are alive, by rank, as psutil's."""
    import psutil

    processes = {}
    for rank, place in read_places(out, mine).items():
        with contextlib.suppress(psutil.Error):
            if place.pid != os.getpid():
                processes[rank] = psutil.Process(place.pid)
    return processes


def process_states(out: Path, mine: Container[int] | None = None) -> dict[int, str]:
    """How the system has the other ranks of this machine now, by rank, in psutil's words."""
    import psutil

    states = {}
    for rank, process in others_of(out, mine).items():
        with contextlib.suppress(psutil.Error):
            states[rank] = process.status()
    return states


def end_others(out: Path, mine: Container[int] | None = None) -> None:
    """Let the other ranks of this machine that do not end by themselves write their stacks, then kill them."""
    import psutil

    others = others_of(out, mine).values()
    # Who has waited as well ends by itself any moment, and tells where better than its stacks do.
    psutil.wait_procs(others, timeout=LATE_SECONDS)
    for number, seconds in ((signal.SIGUSR2, STACKS_SECONDS), (signal.SIGKILL, 0.0)):
        for process in others:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        time.sleep(seconds)


def read_lines(out: Path, own: Path, mine: Container[int] | None = None) -> dict[int, str]:
    """The line of code at which each rank was when its stacks were asked for, by rank: of the folder `own`, if any."""
    lines = {}
    for rank in read_places(out, mine):
        with contextlib.suppress(OSError):
            _, _, stacks = stacks_file(out, rank).read_text(errors="replace").partition("Current thread")
            frames = [line.strip() for line in stacks.split("\n\n")[0].splitlines()[1:]]
            mine = [frame for frame in frames if str(own) in frame]
            if frames:
                lines[rank] = (mine or frames)[0].replace(f"{own}{os.sep}", "")
    return lines


def last_lines(out: Path, rank: int) -> str:
    """The end of what another rank than the first has written."""
    try:
        return "\n".join((rank_folder(out, rank) / OUTPUT).read_text(errors="replace").splitlines()[-LAST_LINES:])
    except OSError:
        return ""


def write_end(out: Path, rank: int, exit_code: int, error: dict[str, Any] | None, states: dict[int, str]) -> None:
    """The last thing that a rank does."""
    end = RankEnd(pid=os.getpid(), host=socket.gethostname(), exit_code=exit_code, told=error, states=states)
    write_atomic(out / RANKS / f"{rank}.end.json", canonical_json(end.model_dump(mode="json")))


def read_ends(out: Path, mine: Container[int] | None = None) -> dict[int, RankEnd]:
    """What each rank wrote at its end, by rank; one that was killed wrote nothing."""
    ends = {}
    for path in (out / RANKS).glob("*.end.json"):
        rank = int(path.name.partition(".")[0])
        with contextlib.suppress(OSError, ValidationError, ValueError):
            if mine is None or rank in mine:
                ends[rank] = RankEnd.model_validate_json(path.read_bytes())
    return dict(sorted(ends.items()))


def write_node(out: Path, node: int, report: NodeReport) -> None:
    """The last thing that a node leaves of its ranks."""
    write_atomic(_node_file(out, node), canonical_json(report.model_dump(mode="json")))


def read_node(out: Path, node: int) -> NodeReport | None:
    """What a node has left of its ranks; None if nothing."""
    try:
        return NodeReport.model_validate_json(_node_file(out, node).read_bytes())
    except (OSError, ValidationError):
        return None


def _node_file(out: Path, node: int) -> Path:
    return out / RANKS / f"node{node}.json"
