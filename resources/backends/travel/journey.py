"""The launcher's side: sends what a job names, says that its worker is wanted, and fetches what it writes.

The job's folder here becomes as it is on the node, a file whole or not at all, and how the worker ended comes last of
all. So whoever reads the folder reads it as if the worker were on this machine.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.errors import BackendError, StateError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.resources.backends.backend import Start
from trainworthy.resources.backends.on_node import ALIVE, END
from trainworthy.resources.backends.signs import BEAT_SECONDS, ObservedSign
from trainworthy.resources.backends.travel.landing import Landing
from trainworthy.resources.backends.travel.parcel import send_parcel
from trainworthy.resources.backends.travel.places import (
    CHECKPOINTS,
    ENDED,
    INDEX,
    TRAVEL,
    WANTED,
    Gate,
    Index,
    start_prefix,
)
from trainworthy.resources.backends.travel.road import Road
from trainworthy.resources.backends.travel.turns import Moved, Turns
from trainworthy.resources.backends.travel.wants import BeatGiven

# What a worker has left is fetched for as long as it comes, and so long as nothing does, once it has ended.
ARRIVE_SECONDS = 600.0
# The same of one that was given up or cancelled: nobody waits for it.
GIVEN_UP_SECONDS = 10.0
# What is tried again by another turn is not tried for minutes within one.
RETRY_SECONDS = 20.0


class Journey:
    """One start of the worker `name`, whose signs are in `folder`."""

    def __init__(self, road: Road, name: str, start: Start, folder: Path, tell: Callable[[str], None]) -> None:
        self._bucket, self._all = _opened(road.bucket), f"{TRAVEL}/{name}"
        self.prefix = start_prefix(name, folder)
        self._start, self._out, self._folder = start, Path(start.job.out), folder
        self._tell, self._road = tell, road
        self.sign = BeatGiven(road.bucket, f"{self.prefix}/{WANTED}")
        # Number of the last index that was taken; each as it was read last.
        self._turn, self._read = 0, dict[str, tuple[bytes, str]]()
        # A turn that hangs outlives this start, and the next one writes in its folder.
        self._gate, self._moved = Gate(), Moved()
        self._landing = Landing(self._bucket, self.prefix, self._out, folder / END, self._gate, self._moved)
        meaning = "what the worker writes does not come from its bucket, and it goes on"
        self._turns, self._beside = Turns(self._take, meaning, tell), Turns(self._take_beside, meaning, tell)
        self._in_turn = False

    @contextlib.contextmanager
    def under_way(self, named: Mapping[str, str]) -> Iterator[None]:
        """Send the job with the files that it names; fetch what comes of it for as long as this process is within.

        Nothing of it is left in the bucket but files by their hash. Raises StateError, SettingsError.
        """
        for left in self._out.rglob(".*.fetching"):
            left.unlink(missing_ok=True)
        self._copies_in_bucket()
        try:
            self._send(named)
            try:
                with self._turns.kept_up(), self._beside.kept_up():
                    yield
            finally:
                until = time.monotonic() + GIVEN_UP_SECONDS
                self._turns.insist(self._take, lambda: until)
        finally:
            self._gate.close()
            self._remove()

    def end_earlier(self) -> None:
        """Take back the word of earlier starts, whose launcher was killed. Raises StateError."""
        try:
            self._bucket.delete(*(name for name in self._bucket.names(self._all) if name.endswith(f"/{WANTED}")))
        except OSError as error:
            raise _not_sent(error, self._road.bucket) from error

    def alive(self) -> ObservedSign:
        """The node's sign of life, as it comes."""
        return _Fetched(self._folder / ALIVE, self._turns)

    def arrived(self, *, succeeded: bool = False) -> None:
        """Have all here that the worker has left, now that it has ended, and said its end if it `succeeded`.

        Raises BackendError.
        """
        self._moved.begin()
        take = self._take_end if succeeded else self._take
        if not self._turns.insist(take, lambda: self._moved.at + ARRIVE_SECONDS):
            fix = (
                "mend what that says: the bucket has to answer, nobody else may remove from travel/ and files/ "
                "(a lifecycle rule), and this disk needs room; then run again: a training resumes"
            )
            problem = (
                "the worker ended, and what it left did not come from the bucket, nor any part of it for "
                f"{ARRIVE_SECONDS:.0f} s"
            )
            raise BackendError(
                f"{problem}: {self._turns.failed_by or 'a request hangs'}",
                value=f"{self._road.bucket}/{self.prefix}",
                fix=fix,
            )

    def _copies_in_bucket(self) -> None:
        """Name where a training's checkpoints are copied to, if nobody has: its disk is gone with it."""
        job = self._start.job
        if isinstance(job, TrainJob) and not job.interruptions.durable and job.stop_after_steps is None:
            durable = f"{self._road.bucket.rstrip('/')}/{CHECKPOINTS}"
            job = job.model_copy(update={"interruptions": job.interruptions.model_copy(update={"durable": durable})})
            write_atomic(self._start.path, canonical_json(JobFile(job=job).model_dump(mode="json")))

    def _send(self, named: Mapping[str, str]) -> None:
        job = self._start.job
        try:
            parcel = send_parcel(Bucket(self._road.bucket), self.prefix, job, named, self._road, self._folder)
            self.sign.give_first()
        except OSError as error:
            raise _not_sent(error, self._road.bucket) from error
        out = f"{parcel.out}/"
        self._landing.alike = {
            name.removeprefix(out): sha256 for name, sha256 in parcel.files.items() if name.startswith(out)
        }  # fmt: skip

    def _take_end(self) -> None:
        """The same of a node that has said its end. Raises OSError also where it has not."""
        if self._index(ENDED) is None:
            where = f"{self._bucket.address}/{self.prefix}/{ENDED}"
            raise FileNotFoundError(errno.ENOENT, "the worker has succeeded, and its end is not there", where)
        self._take()

    def _take(self) -> None:
        """Make the job's folder here as the node says it is there. Raises OSError."""
        index = self._index(ENDED) or self._index(INDEX)
        if index is None or index.turn <= self._turn:
            return
        # It is written anew once a minute whatever happens, and says that the node is there.
        self._landing.write(self._folder / ALIVE, str(index.turn))
        self._in_turn = True
        try:
            self._landing.take(index)
        finally:
            self._in_turn = False
        self._turn = index.turn

    def _take_beside(self) -> None:
        """What is read as it comes, while a turn fetches a large file. Raises OSError."""
        index = self._index(INDEX) if self._in_turn else None
        if index is not None and index.turn > self._turn:
            self._landing.write(self._folder / ALIVE, str(index.turn))
            self._landing.take_streams(index)

    def _index(self, name: str) -> Index | None:
        """What the node says at its end, or by now; None if it has not yet."""
        stored = self._bucket.read_again(f"{self.prefix}/{name}", self._read.get(name))
        if stored is None:
            return None
        self._read[name] = stored
        try:
            return Index.model_validate_json(stored[0])
        except ValidationError:
            where = f"{self._bucket.address}/{self.prefix}/{name}"
            raise OSError(errno.EIO, "what lies there was not written by Trainworthy", where) from None

    def _remove(self) -> None:
        """Remove this start's objects, and those of earlier ones whose launcher was killed."""
        try:
            self._bucket.delete(*self._bucket.names(self._all))
        except OSError as error:
            self._tell(f"what a worker was sent could not be removed below {self._all}; its next start does: {error}")


class _Fetched(ObservedSign):
    """A sign that comes by turns: time in which none comes to be, as of a bucket that is away, is none of silence."""

    def __init__(self, path: Path, turns: Turns) -> None:
        super().__init__(path)
        self._turns = turns

    def _content(self) -> str | None:
        content = super()._content()
        self._answered = self._answered and time.monotonic() - self._turns.came_at < BEAT_SECONDS
        return content


def _opened(address: str) -> Bucket:
    """The bucket. Raises StateError where credentials are missing."""
    try:
        return Bucket(address, retry_seconds=RETRY_SECONDS)
    except OSError as error:
        raise _not_sent(error, address) from error


def _not_sent(error: OSError, address: str) -> StateError:
    fix = "see that the bucket of TRAINWORTHY_STATE answers (trainworthy doctor), then run again"
    problem = f"what the job needs could not be sent to its worker: {error.strerror or error}"
    return StateError(problem, value=str(error.filename or address), fix=fix)
