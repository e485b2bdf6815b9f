"""One machine a durable folder: a name in it that its holder renews.

A lock does not reach another machine's disk, so `.lease` in the folder says who writes there, and changes every few
seconds. Whoever comes watches it: one that still changes is alive, and the newcomer ends; one that does not is taken
over, and its holder ends if it comes back. No clocks are compared. Between looking and writing another may write, too:
storage without a compare-and-swap leaves these moments open.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import LeaseLostError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob
from trainworthy.lifecycle.storage.checkpoints import durable_folder
from trainworthy.lifecycle.storage.state import write_atomic

NAME = ".lease"
RENEW_SECONDS = 5.0
# A lease that did not change for so long is of a machine that is gone: six renewals, for storage that is slow.
EXPIRES_SECONDS = 30.0


@contextlib.contextmanager
def durable_lease(job: AnyJob, out: Path, asked: Callable[[], bool]) -> Iterator[tuple[Callable[[], None], float]]:
    """Around a job, whose training may have its checkpoints copied: held_lease's check, and the seconds waited for it.

    Raises LeaseLostError, and PreemptedError if `asked` to end meanwhile.
    """
    durable = durable_folder(job) if isinstance(job, TrainJob) else None
    if durable is None:
        yield lambda: None, 0.0
        return

    def wait(seconds: float) -> None:
        time.sleep(seconds)
        if asked():
            raise PreemptedError

    started = time.monotonic()
    with held_lease(durable, out, wait) as check:
        yield check, time.monotonic() - started


@contextlib.contextmanager
def held_lease(durable: Path, out: Path, wait: Callable[[float], object]) -> Iterator[Callable[[], None]]:
    """Hold the lease of `durable` for the training in `out`; gives what raises LeaseLostError once another has it.

    Waits by `wait` until a holder that is gone is known to be. Raises LeaseLostError if the holder is alive.
    """
    owner = _owner(out)
    _watch(durable / NAME, owner, wait)
    lease = _Lease(durable / NAME, owner)
    lease.write()
    lease.start()
    try:
        yield lease.check
    finally:
        lease.end()


class _Lease(threading.Thread):
    """Renews the name until it ends, or finds another's."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(name=f"lease of {path}", daemon=True)
        self._path, self._owner, self._renewals = path, owner, itertools.count()
        self._ended = threading.Event()
        self._lost: dict[str, Any] | None = None

    def run(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            # A storage that is away is the copies' to tell.
            with contextlib.suppress(OSError):
                self.renew()

    def renew(self) -> None:
        """Write the name anew, unless another's is there: then this one is lost. Raises OSError."""
        found = _read(self._path)
        if found is not None and found["owner"] != self._owner:
            self._lost = found
            self._ended.set()
        else:
            self.write()

    def write(self) -> None:
        """Write the name, whatever is there. Raises OSError."""
        named = {"owner": self._owner, "host": socket.gethostname(), "renewal": next(self._renewals)}
        write_atomic(self._path, canonical_json(named))

    def check(self) -> None:
        """Raises LeaseLostError if another has the lease."""
        if self._lost is not None:
            raise _taken(self._path, self._lost, "took it over: this one was away for longer than its lease")

    def end(self) -> None:
        """Let go of the folder, so that nobody has to wait for it."""
        self._ended.set()
        self.join()
        with contextlib.suppress(OSError):
            if self._lost is None and (_read(self._path) or {}).get("owner") == self._owner:
                self._path.unlink()


def _watch(path: Path, owner: str, wait: Callable[[float], object]) -> None:
    """Return once nobody alive holds the lease."""
    first = _read(path)
    if first is None or first["owner"] == owner:
        return
    say(f"{path.parent} is of {first['host']}; looking for {EXPIRES_SECONDS:.0f} s whether it is alive")
    for _ in range(round(EXPIRES_SECONDS / RENEW_SECONDS)):
        wait(RENEW_SECONDS)
        found = _read(path)
        if found is None:
            return
        if found != first:
            raise _taken(path, found, "writes there now")


def _taken(path: Path, holder: dict[str, Any], does: str) -> LeaseLostError:
    return LeaseLostError(
        f"another machine trains the same and {does}",
        value=f"{path.parent}, held by {holder['host']}",
        fix="let that training end, or end it; one of them is enough, and the other takes its checkpoint",
    )


def _read(path: Path) -> dict[str, Any] | None:
    """The name in the file, None if there is no whole one. Raises OSError if the storage does not answer."""
    try:
        found = json.loads(path.read_bytes())
        return {key: found[key] for key in ("owner", "host", "renewal")}
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def _owner(out: Path) -> str:
    """A name that this machine keeps with the training's local folder, whose lock whoever asks holds."""
    path = out / ".lease_owner"
    if not path.is_file():
        write_atomic(path, uuid.uuid4().hex.encode())
    boot = Path("/proc/sys/kernel/random/boot_id")
    # A copy of the folder on another machine is another owner.
    return f"{path.read_text()} {boot.read_text().strip() if boot.is_file() else socket.gethostname()}"
