"""The entry of a Ray job by several nodes, on Ray's head: has Ray hold the nodes, and on_node.py run on each.

`python -m trainworthy.resources.backends.ray_entry --folder FOLDER --nodes 2 --bundle JSON … -- COMMAND` asks for a
placement group, all or nothing, with a bundle on each of so many nodes. Once it is there, a task of Ray runs COMMAND in
each, with its number and address. The nodes meet by FOLDER (meeting.py) and are wanted as any worker is; here it is
said in FOLDER/end.json how all ended, and those that nobody would end otherwise are asked to. Ray removes the group,
also of one that still waits, with this process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from trainworthy.lifecycle.failure import EXIT_PREEMPTED, MemorySeen
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.meeting import absent, folders
from trainworthy.resources.backends.node_ends import cpu_seconds_of, node_of
from trainworthy.resources.backends.on_node import (
    ALIVE,
    END,
    OTHER_LOCKS,
    STDERR,
    STDOUT,
    WANTED,
    NodeEnd,
    last_line,
    read_end,
)
from trainworthy.resources.backends.ray_jobs import HELD, NO_MEETING, NO_NODES, START_SECONDS, START_TIMEOUT
from trainworthy.resources.backends.ray_nodes import (
    TaskEnd,
    could_not_begin,
    judged_of_nodes,
    seconds_for_the_others,
)
from trainworthy.resources.backends.signs import Given, ObservedSign

LOOK_SECONDS = 1.0
# In the job's folder, among those of its nodes.
LOCK = OTHER_LOCKS.replace("*", "s")
# From the end of the workers' grace to that of what runs them.
MARGIN_SECONDS = 10.0
# So long Ray's table of nodes may take to say why one is gone: its health check took 18 s.
REASON_SECONDS = 40.0


class _Asked:
    """Whether the worker is still wanted, and if not who says so, in words."""

    def __init__(self, folder: Path, abandoned_seconds: float) -> None:
        self._sign, self._abandoned_seconds, self.why = ObservedSign(folder / WANTED), abandoned_seconds, ""

    def look(self) -> str:
        """Why it is to end; "" while it is wanted."""
        if not self.why and not self._sign.there():
            self.why = "it is no longer wanted by whoever started it"
        if not self.why and (silent := self._sign.silent_seconds()) > self._abandoned_seconds:
            self.why = f"whoever started it has given no sign of life for {silent:.0f} s"
        return self.why

    def expect_wanted(self) -> None:
        """Ends this process if the worker is no longer wanted."""
        if self.look():
            say(self.why)
            sys.exit(EXIT_PREEMPTED)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """A signal asks for the end."""
        self.why = self.why or "its job of Ray was stopped by somebody else"


def main(arguments: list[str] | None = None) -> int:
    """Run one job by several nodes to its end; 0 if all ended well."""
    options = _options(arguments)
    asked = _Asked(options.folder, options.abandoned)
    with locked(options.folder.parents[1], say, LOCK, asked.expect_wanted) as lock:
        # Held until this process is gone: by it a launcher knows that, also where Ray's head does not answer.
        os.dup(lock)
        return _run(options, asked)


def _run(options: argparse.Namespace, asked: _Asked) -> int:
    with _group(options.nodes, json.loads(options.bundle), asked) as group:
        if not _held(group, asked):
            return _not_held(options, asked)
        (options.folder / HELD).touch()
        run = _Run(options, group, asked)
        ends = run.to_its_end()
    if run.missing:
        say(run.missing)
        return NO_MEETING
    places = folders(options.folder, options.nodes)
    alive = [ObservedSign(place / ALIVE).there() for place in places]
    if not asked.why and (words := could_not_begin(ends, alive, [last_line(place / STDERR) for place in places])):
        say(words)
        return 1
    words = [read_end(place) for place in places]
    ended = judged_of_nodes(ends, words, asked.why)
    _leave(options.folder, replace(ended, cpu_seconds=cpu_seconds_of(words)))
    return 1 if ended.exit_code else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainworthy.resources.backends.ray_entry", description="Holds nodes of Ray.")
    parser.add_argument("--folder", type=Path, required=True, help="folder of this start, below the job's")
    parser.add_argument("--nodes", type=int, required=True, help="how many train together")
    parser.add_argument("--bundle", required=True, help="what each has, as JSON, by Ray's names")
    parser.add_argument("--grace", type=float, required=True, help="seconds from being asked to end to being killed")
    parser.add_argument("--abandoned", type=float, required=True, help="seconds without a sign to go on for")
    parser.add_argument("--meet", type=float, required=True, help="seconds from holding all nodes to their meeting")
    parser.add_argument("command", nargs="+", help="what runs on each, which is told its number and address")
    return parser.parse_args(arguments)


def _ray() -> Any:
    """The package: by `import ray` a type checker takes ray.py of this folder for it."""
    return import_module("ray")


@contextlib.contextmanager
def _group(nodes: int, bundle: Mapping[str, float], asked: _Asked) -> Iterator[Any]:
    """The placement group while this is within; it need not be there yet."""
    from ray.util import placement_group, remove_placement_group  # pyright: ignore[reportMissingImports]

    ray = _ray()

    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    except RuntimeError as error:
        # Of another version, in many lines.
        sys.exit(" ".join(str(error).split()))
    # Ray has one of its own by now, which would end this at once, and Ray then all that it started.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked.stop)
    group = placement_group([dict(bundle)] * nodes, strategy="STRICT_SPREAD")
    try:
        yield group
    finally:
        remove_placement_group(group)


def _held(group: Any, asked: _Asked) -> bool:
    """Wait for all nodes at once, as long as Ray lets a job wait for one; False if that is in vain."""
    until = time.monotonic() + float(os.environ.get(START_TIMEOUT) or START_SECONDS)
    while not group.wait(LOOK_SECONDS):
        if asked.look() or time.monotonic() > until:
            return False
    return not asked.look()


def _not_held(options: argparse.Namespace, asked: _Asked) -> int:
    if asked.why:
        _leave(options.folder, Ended(-signal.SIGTERM, MemorySeen(), asked.why))
        return EXIT_PREEMPTED
    say(f"{options.nodes} nodes, each with {options.bundle}")
    return NO_NODES


class _Run:
    """What runs on each node, from its start to the end of all."""

    def __init__(self, options: argparse.Namespace, group: Any, asked: _Asked) -> None:
        self._options, self._group, self._asked = options, group, asked
        self._places = folders(options.folder, options.nodes)
        self._alive, self._met = Given(options.folder / ALIVE), False
        self._signs = [ObservedSign(place / ALIVE) for place in self._places]
        # Whose address the others waited for in vain, in words.
        self.missing = ""
        self._ends = dict[int, TaskEnd]()
        # When the first node ended, and the time of the last one at most.
        self._first_end, self._until = math.inf, math.inf

    def to_its_end(self) -> list[TaskEnd]:
        """How each node's ended, in Ray's words where it did not end by itself."""
        from ray.util import placement_group_table  # pyright: ignore[reportMissingImports]

        ray = _ray()

        # Later Ray may have put a bundle on another node.
        node_ids = placement_group_table(self._group)["bundles_to_node_id"]
        tasks = self._started()
        running, held_at = dict(tasks), time.monotonic()
        while running and time.monotonic() < self._until:
            done, _ = ray.wait(list(running), timeout=LOOK_SECONDS)
            for task in done:
                self._ends[running.pop(task)] = _end_of(task)
                self._first_end = min(self._first_end, time.monotonic())
            self._look(time.monotonic() - held_at)
        ends = [self._ends.get(at, TaskEnd(runs=True)) for at in range(len(tasks))]
        # Nobody waits for reasons where all were asked to end.
        return _with_reasons(ends, node_ids, 0.0 if self._asked.why else REASON_SECONDS)

    def _started(self) -> dict[Any, int]:
        from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
            PlacementGroupSchedulingStrategy,
        )

        ray = _ray()

        bundle = json.loads(self._options.bundle)
        named = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU")}
        given = {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0), "resources": named, "max_retries": 0}
        task = ray.remote(run_on_node)

        def begun(number: int, place: Path) -> Any:
            strategy = PlacementGroupSchedulingStrategy(self._group, number)
            output = str(place / STDOUT), str(place / STDERR)
            return task.options(scheduling_strategy=strategy, **given).remote(self._options.command, number, *output)

        return {begun(number, place): number for number, place in enumerate(self._places)}

    def _look(self, held_seconds: float) -> None:
        """Say that they live, and ask them to end if nobody else would."""
        if all(sign.there() for sign in self._signs):
            self._alive.give()
        absent_nodes = [] if self._met else absent(self._options.folder, len(self._places))
        self._met = not absent_nodes
        if absent_nodes and not self._asked.look() and not self._ends and held_seconds > self._options.meet:
            names = ", ".join(node_of(at, self._places) for at in absent_nodes)
            self.missing = f"after {held_seconds:.0f} s no address of {names} below {self._options.folder}"
        if self._until < math.inf or self._asked.look() or self.missing or self._nobody_ends_them():
            self._until = min(self._until, time.monotonic() + self._options.grace + MARGIN_SECONDS)
            for place in self._places:
                # Again and again, where the storage does not answer.
                with contextlib.suppress(OSError):
                    (place / WANTED).unlink(missing_ok=True)

    def _nobody_ends_them(self) -> bool:
        if not self._ends:
            return False
        first_word = read_end(self._places[0]) is not None
        seconds = seconds_for_the_others(self._ends, met=self._met, first_word=first_word)
        return time.monotonic() - self._first_end > seconds


def run_on_node(command: list[str], number: int, stdout: str, stderr: str) -> int:
    """Run the command on this node to its end; its exit code, 128 and its number for a signal.

    Ray's own Python runs this, by value: nothing of ours is imported. If Ray ends its process, the kernel ends the
    child.
    """
    import ctypes
    import os
    import signal
    import subprocess
    from importlib import import_module

    ray: Any = import_module("ray")
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent() -> None:
        # PR_SET_PDEATHSIG.
        prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    given = ["--number", str(number), "--address", ray.util.get_node_ip_address()]
    with open(stdout, "ab") as out, open(stderr, "ab") as err:
        code = subprocess.Popen([*command, *given], stdout=out, stderr=err, preexec_fn=end_with_parent).wait()
    return 128 - code if code < 0 else code


def _end_of(task: Any) -> TaskEnd:
    from ray.exceptions import RayTaskError  # pyright: ignore[reportMissingImports]

    ray = _ray()

    try:
        return TaskEnd(exit_code=ray.get(task))
    except Exception as error:
        # Of an error in a task the last line says what it was.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        in_task = isinstance(error, RayTaskError)
        return TaskEnd(lost=(lines[-1] if in_task else " ".join(lines))[:500])


def _with_reasons(ends: Sequence[TaskEnd], node_ids: Mapping[int, str], seconds: float) -> list[TaskEnd]:
    """With what Ray's table of nodes says of those that are gone, as far as it does in so many seconds."""
    ray = _ray()
    until, lost = time.monotonic() + seconds, {at for at, end in enumerate(ends) if end.node_gone}
    while True:
        table = {row["NodeID"]: row for row in ray.nodes()} if lost else {}
        rows = [table.get(node_ids.get(at, ""), {}) if at in lost else {} for at in range(len(ends))]
        if all(rows[at].get("DeathReason") for at in lost) or time.monotonic() > until:
            break
        time.sleep(LOOK_SECONDS)
    return [
        replace(end, reason=rows[at].get("DeathReason", 0), reason_words=rows[at].get("DeathReasonMessage", ""))
        for at, end in enumerate(ends)
    ]


def _leave(folder: Path, ended: Ended) -> None:
    """Say how all ended, to who waits for it; storage that is away leaves the exit code to tell it."""
    end = NodeEnd(exit_code=ended.exit_code, memory=ended.memory, seen=ended.seen, cpu_seconds=ended.cpu_seconds)
    try:
        write_atomic(folder / END, canonical_json(end.model_dump(mode="json")))
    except OSError as error:
        say(f"{END} could not be left: {error}")


if __name__ == "__main__":
    sys.exit(main())
