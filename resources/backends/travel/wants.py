"""Whether a worker is still wanted, by a beat that its launcher writes in the bucket.

The launcher writes it every BEAT_SECONDS, and takes it away. The node reads it, and renews the file that on_node.py
looks at for as long as the worker is wanted: by a thread that waits for no request, so that a bucket that hangs or is
away ends nothing. What ends it is a bucket that answers, and says that the beat is gone or has stopped. One that takes
no writes, since it is full or read-only, has no beats either: it counts as away.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends import signs
from trainworthy.resources.backends.on_node import SIGN_SECONDS
from trainworthy.resources.backends.signs import ObservedSign
from trainworthy.resources.backends.travel.places import SIGN_ANSWER_SECONDS, SIGN_RETRY_SECONDS, TURN_SECONDS
from trainworthy.resources.backends.travel.turns import told

# So long a worker goes on while its bucket does not answer: as long as while its cluster does not.
AWAY_SECONDS = 3600.0
# The beat is taken away once that was said so often.
ABSENCES = 2
# A beat that is so many late may be missing because the bucket takes no writes.
LATE_BEATS = 2
# How often the file is looked after, and renewed.
LOOK_SECONDS, RENEWED_SECONDS = 0.5, 1.0


def quick_bucket(address: str) -> Bucket:
    """The bucket, for requests about signs of life, which are tried again by their next."""
    return Bucket(address, SIGN_ANSWER_SECONDS, SIGN_RETRY_SECONDS)


class BeatGiven:
    """A sign that this process gives in the bucket: a Sign."""

    def __init__(self, address: str, name: str) -> None:
        self._bucket, self._name = quick_bucket(address), name
        self._tried, self._withdrawn = -float("inf"), False

    def give(self) -> None:
        """Renew it, every BEAT_SECONDS at most, as far as the bucket answers. What was withdrawn is not given again."""
        now = time.monotonic()
        if not self._withdrawn and now - self._tried >= signs.BEAT_SECONDS:
            self._tried = now
            with contextlib.suppress(OSError):
                self._bucket.put(self._name, str(time.time_ns()).encode())

    def give_first(self) -> None:
        """Give it once, as patiently as files are sent, which may have taken hours. Raises OSError."""
        Bucket(self._bucket.address).put(self._name, str(time.time_ns()).encode())

    def withdraw(self) -> None:
        """Take it away for good, as far as the bucket answers."""
        self._withdrawn = True
        with contextlib.suppress(OSError):
            self._bucket.delete(self._name)


class BeatObserved(ObservedSign):
    """A sign that another gives in the bucket, which answered last at `answered_at` of the monotonic clock.

    One that is late counts as silence only while the bucket takes what this process writes beside it.
    """

    def __init__(self, address: str, name: str) -> None:
        super().__init__(Path(name))
        self._bucket, self._name, self.answered_at = quick_bucket(address), name, time.monotonic()
        self._changed_at = self.answered_at

    def _content(self) -> str | None:
        now = time.monotonic()
        try:
            stored = self._bucket.read(self._name)
            content = None if stored is None else stored[0].decode(errors="replace")
            if content != self._known:
                self._known, self._changed_at = content, now
            elif content is not None and now - self._changed_at > LATE_BEATS * signs.BEAT_SECONDS:
                self._bucket.put(f"{self._name}.late", str(time.time_ns()).encode())
        except OSError:
            self._answered = False
            return self._known
        self._answered, self.answered_at = True, time.monotonic()
        return self._known

    def look(self) -> tuple[str | None, float]:
        """Its content, None where the bucket says now that it is gone, and how long it has not changed."""
        silent = self.silent_seconds()
        return self._known if self._answered else self._known or "", silent


class Wants:
    """Keeps the file `path` there while the beat says that the worker is wanted, with the launcher's time in it."""

    def __init__(self, beat: BeatObserved, path: Path, abandoned_seconds: float) -> None:
        self._beat, self._path, self._abandoned_seconds = beat, path, abandoned_seconds
        # What has to be added to this machine's time to have the launcher's.
        self._ahead_ns, self._over = 0, threading.Event()
        # How often in a row the bucket has said that the beat is not there: a proxy may say so once.
        self._absent = 0
        # Set once it is no longer wanted.
        self.gone = threading.Event()

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[None]:
        """By threads of its own for as long as this process is within, once the launcher was heard of."""
        self._hear_of_launcher()
        if not self.gone.is_set():
            self._renew()
        threads = [
            threading.Thread(target=self._listen, name="beat of the launcher", daemon=True),
            threading.Thread(target=self._keep_renewed, name="sign of the launcher", daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()

    def _hear_of_launcher(self) -> None:
        """Wait for a beat that is fresh: from its time the launcher's clock is known."""
        first, until = "", time.monotonic() + SIGN_SECONDS
        while not self.gone.is_set():
            content = self._look()
            if content and content.isdecimal():
                self._ahead_ns = int(content) - time.time_ns()
                fresh = first not in ("", content) or abs(self._ahead_ns) < SIGN_SECONDS * 1e9
                if fresh or time.monotonic() > until:
                    return
                first = first or content
            self._end_if_away()
            time.sleep(LOOK_SECONDS)

    def _look(self) -> str | None:
        content, silent = self._beat.look()
        self._absent = 0 if content is not None else self._absent + 1
        if self._absent >= ABSENCES:
            self._give_up("its launcher has taken its word back")
        elif silent > self._abandoned_seconds:
            self._give_up(f"its launcher has given no sign of life for {silent:.0f} s")
        return content

    def _listen(self) -> None:
        last = ""
        while not self._over.wait(TURN_SECONDS) and not self.gone.is_set():
            try:
                content = self._look()
                if content and content != last and content.isdecimal():
                    self._ahead_ns, last = int(content) - time.time_ns(), content
            except Exception as error:
                told(say, f"the beat of the launcher could not be read, and is looked for again: {error}")

    def _keep_renewed(self) -> None:
        while not self._over.wait(RENEWED_SECONDS) and not self.gone.is_set():
            self._end_if_away()
            if not self.gone.is_set():
                self._renew()

    def _end_if_away(self) -> None:
        away = time.monotonic() - self._beat.answered_at
        if away > AWAY_SECONDS:
            why = "the bucket by which its launcher is heard did not answer, or took no writes"
            self._give_up(f"{why}, for {away:.0f} s")

    def _renew(self) -> None:
        # What is there is not cut off first: on a full disk it would stay empty.
        with contextlib.suppress(OSError), self._path.open("r+" if self._path.exists() else "w") as file:
            file.write(str(time.time_ns() + self._ahead_ns))
        if self.gone.is_set():
            self._path.unlink(missing_ok=True)

    def _give_up(self, why: str) -> None:
        first = not self.gone.is_set()
        self.gone.set()
        if first:
            told(say, f"this worker is ended: {why}")
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
