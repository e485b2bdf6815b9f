"""Runs a worker on a machine without its files: `python -m ….travel.arrival --bucket ADDRESS … -- ARGUMENTS`.

Fetches what the job names to the paths that it has on its launcher's machine, does there what on_node.py does with the
ARGUMENTS, and has what the worker writes in the bucket. It ends with the worker's exit code once that is all there;
where that cannot be a success becomes EXIT_STORAGE.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.errors import BackendError, SettingsError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_DISK_FULL, EXIT_INTERNAL, EXIT_PREEMPTED, EXIT_STORAGE
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.storage.durable.bucket import Bucket, check_address
from trainworthy.resources.backends import on_node
from trainworthy.resources.backends.on_node import STDERR, STDOUT
from trainworthy.resources.backends.travel.disk import held
from trainworthy.resources.backends.travel.mirror import NodeMirror, send_refusal
from trainworthy.resources.backends.travel.parcel import AnotherNodeError, claimed, lay_out
from trainworthy.resources.backends.travel.places import LAST_SECONDS, WANTED, Gate, Made, Parcel, at_once
from trainworthy.resources.backends.travel.turns import Moved, told
from trainworthy.resources.backends.travel.wants import AWAY_SECONDS, BeatObserved, Wants


def main(arguments: list[str]) -> int:
    """Run one job's worker to its end, and have it in the bucket; returns the exit code."""
    at = arguments.index("--")
    own, others = arguments[:at], arguments[at + 1 :]
    options = _options(own)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Else a process 1 takes no notice until its kubelet kills it.
        signal.signal(number, _ask)
    try:
        check_address(options.bucket)
        bucket = Bucket(options.bucket)
        return _arrived(options, others, bucket)
    except SettingsError as error:
        # Its image lacks what it needs.
        told(say, str(error))
        return EXIT_BAD_INPUT
    except (AnotherNodeError, _AskedError) as error:
        # Its launcher makes a job anew.
        told(say, str(error))
        return EXIT_PREEMPTED
    except (OSError, ValidationError) as error:
        told(say, f"what the job needs cannot be fetched: {error}")
        return EXIT_DISK_FULL if isinstance(error, OSError) and error.errno == errno.ENOSPC else EXIT_STORAGE


def _arrived(options: argparse.Namespace, others: list[str], bucket: Bucket) -> int:
    """Have the start's files here, and run its worker.

    Raises SettingsError, AnotherNodeError, _AskedError, OSError, ValidationError.
    """
    try:
        parcel = _awaited(lambda: claimed(bucket, options.start))
    except SettingsError as error:
        with contextlib.suppress(OSError):
            _awaited(functools.partial(send_refusal, bucket, options.start, error, EXIT_BAD_INPUT))
        raise
    try:
        with held(options.root, parcel.launcher), contextlib.closing(Gate()) as gate:
            _awaited(lambda: lay_out(bucket, parcel, options.root, gate))
            if options.output:
                _write_to(options.root / parcel.folder)
            return _run(options, others, bucket, parcel)
    except BackendError as error:
        # No fault of the job's.
        told(say, str(error))
        with contextlib.suppress(OSError):
            send_refusal(bucket, options.start, error, EXIT_STORAGE)
        return EXIT_STORAGE


class _AskedError(Exception):
    """The node was asked to end before its worker began."""


def _ask(number: int, frame: object) -> None:
    # Once: a second signal would cut off what the first one has ended.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise _AskedError(f"this node was asked to end by {signal.Signals(number).name} before its worker began")


def _awaited(work: Callable[[], Made]) -> Made:
    """What `work` makes by a thread of its own: a signal is heard while this one waits, and not while it asks."""
    return at_once(lambda _: work(), [None])[0]


def _run(options: argparse.Namespace, others: list[str], bucket: Bucket, parcel: Parcel) -> int:
    """Run the worker of a start whose files are there, and have what it leaves in the bucket."""
    mirror = NodeMirror(bucket, options.start, parcel, options.root)
    beat = BeatObserved(options.bucket, f"{options.start}/{WANTED}")
    wants = Wants(beat, options.root / parcel.folder / on_node.WANTED, options.abandoned)
    with wants.kept_up():
        with mirror.kept_up():
            end = _End(wants, mirror.moved)
            code = _worked(others, end)
            end.begins(options.root / parcel.folder)
        if mirror.end(code, end.until):
            return code
    why = mirror.failed_by or "its line is too slow for what there was to send in that time, or a request hangs"
    told(say, f"the worker ended with {code}, and the bucket did not take that: its launcher will not know: {why}")
    # An answer that is missing is no success; any other end is what it is.
    return code or EXIT_STORAGE


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainworthy.resources.backends.travel.arrival", description="Runs a worker.")
    parser.add_argument("--bucket", required=True, help="address of the shared state")
    parser.add_argument("--start", required=True, help="name below which this start's objects lie")
    parser.add_argument("--root", type=Path, required=True, help="folder that the launcher's project lies in")
    parser.add_argument("--abandoned", type=float, required=True, help="seconds without a beat to go on for")
    parser.add_argument("--output", action="store_true", help="have what is written here in the bucket as well")
    return parser.parse_args(arguments)


def _write_to(folder: Path) -> None:
    """From here on this process and those that it starts write to files of that folder."""
    say(f"writes to {folder}, and to its launcher")
    for stream, name in ((sys.stdout, STDOUT), (sys.stderr, STDERR)):
        stream.flush()
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())


def _worked(arguments: list[str], end: _End) -> int:
    try:
        return on_node.main(arguments, end.soon)
    except _AskedError:
        # Before it has begun: nothing is to be kept.
        raise
    except Exception:
        # What it left is of use to who looks for the cause.
        traceback.print_exc()
        return EXIT_INTERNAL


class _End:
    """How long a worker's end may take to come into the bucket: LAST_SECONDS once it was asked for, or nobody waits.

    Else as long as something of it goes, or went AWAY_SECONDS ago at most.
    """

    def __init__(self, wants: Wants, moved: Moved) -> None:
        self._wants, self._moved, self._latest = wants, moved, math.inf

    def begins(self, folder: Path) -> None:
        """Now that the worker has ended, with how in the folder. A signal asks once: it may have been before."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.soon)
        said = on_node.read_end(folder)
        if said is not None and said.seen:
            self.soon()

    def soon(self, number: int = 0, frame: object = None) -> None:
        """What a signal does: it asks for the end."""
        self._latest = min(self._latest, time.monotonic() + LAST_SECONDS)

    def until(self) -> float:
        """The latest time, by the monotonic clock."""
        if self._wants.gone.is_set():
            self.soon()
        return min(self._latest, self._moved.at + AWAY_SECONDS)


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads may wait for a bucket that does not answer.
    os._exit(exit_code)
