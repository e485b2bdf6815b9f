"""One machine for the copies of a training: a name beside them that its holder renews.

A lock does not reach another machine's disk, so a name says who writes there, and changes every few seconds. Whoever
comes watches it: one that still changes is alive, and the newcomer ends; one that does not is taken over, and its
holder ends if it comes back. No clocks are compared. What happens between looking and writing is the storage's to
prevent: a folder cannot (folder.py), a bucket does (bucket_store.py).
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob
from trainworthy.lifecycle.storage.durable.holder import Holder, Name, taken
from trainworthy.lifecycle.storage.durable.place import holder_of
from trainworthy.lifecycle.storage.state import write_atomic

RENEW_SECONDS = 5.0
# A lease that did not change for so long is of a machine that is gone: six renewals, for storage that is slow.
EXPIRES_SECONDS = 30.0


@contextlib.contextmanager
def durable_lease(
    job: AnyJob, out: Path, stop_requested: Callable[[], bool]
) -> Iterator[tuple[Callable[[], None], float]]:
    """Around a job, whose training may have its checkpoints copied: held_lease's check, and the seconds waited for it.

    Raises LeaseLostError, and PreemptedError if `stop_requested` meanwhile.
    """
    holder = holder_of(job) if isinstance(job, TrainJob) else None
    if holder is None:
        yield lambda: None, 0.0
        return

    def wait(seconds: float) -> None:
        time.sleep(seconds)
        if stop_requested():
            raise PreemptedError

    started = time.monotonic()
    with held_lease(holder, out, wait) as check:
        yield check, time.monotonic() - started


@contextlib.contextmanager
def held_lease(holder: Holder, out: Path, wait: Callable[[float], object]) -> Iterator[Callable[[], None]]:
    """Hold the copies for the training in `out`; gives what raises LeaseLostError once another has them.

    Waits by `wait` until a holder that is gone is known to be. Raises LeaseLostError if the holder is alive.
    """
    owner = _owner(out)

    def say_waiting(name: Name) -> None:
        say(f"{holder.where} is of {name.host}; looking for {EXPIRES_SECONDS:.0f} s whether it is alive")

    holder.take(owner, watched(holder, owner, wait, say_waiting))
    lease = Lease(holder, owner)
    lease.start()
    try:
        yield lease.check
    finally:
        lease.end()


class Lease(threading.Thread):
    """Renews the name until it ends, or finds another's."""

    def __init__(self, holder: Holder, owner: str) -> None:
        super().__init__(name=f"lease of {holder.where}", daemon=True)
        self._holder, self._owner = holder, owner
        self._ended = threading.Event()
        self._lost: Name | None = None

    def run(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            # A storage that is away is the copies' to tell.
            with contextlib.suppress(OSError):
                self._lost = self._holder.renew(self._owner)
                if self._lost is not None:
                    return

    def check(self) -> None:
        """Raises LeaseLostError if another has the lease."""
        if self._lost is not None:
            raise taken(self._holder.where, self._lost, "took it over: this one was away for longer than its lease")

    def end(self, *, let_go: bool = True) -> None:
        """End, and let go of it, so that nobody has to wait for it; else it is taken over as from one that is gone."""
        self._ended.set()
        self.join()
        with contextlib.suppress(OSError):
            if self._lost is None and let_go:
                self._holder.release(self._owner)


def watched(
    holder: Holder,
    owner: str,
    wait: Callable[[float], object],
    say_waiting: Callable[[Name], None],
    *,
    patient: bool = False,
) -> Name | None:
    """Who was there and is gone, once that is known; None if nobody was, or whoever was let go.

    Of a holder that is alive the end is waited for if `patient`; else raises LeaseLostError. `say_waiting` is called
    once before a wait.
    """
    previous = holder.read()
    if previous is None or previous.owner == owner:
        return previous
    say_waiting(previous)
    unchanged = 0
    while unchanged < round(EXPIRES_SECONDS / RENEW_SECONDS):
        wait(RENEW_SECONDS)
        current = holder.read()
        if current is None:
            return None
        if current != previous and not patient:
            raise taken(holder.where, current, "writes there now")
        previous, unchanged = current, unchanged + 1 if current == previous else 0
    return previous


def _owner(out: Path) -> str:
    """A name that this machine keeps with the training's local folder, whose lock whoever asks holds."""
    path = out / ".lease_owner"
    if not path.is_file():
        write_atomic(path, uuid.uuid4().hex.encode())
    boot = Path("/proc/sys/kernel/random/boot_id")
    # A copy of the folder on another machine is another owner.
    return f"{path.read_text()} {boot.read_text().strip() if boot.is_file() else socket.gethostname()}"
