"""A stage's windows in MLflow while it trains: a thread follows the worker's metrics.jsonl.

Nothing here can stop a training. While MLflow does not answer, lines wait; what still waits when the worker ends is
written by track.py from the record. Both write by figure and step, so that nothing is doubled.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.training.watching.metrics_file import FILE_NAME, MetricsLine, read_from

if TYPE_CHECKING:
    from assets.step import StepRun

EVERY_SECONDS = 1.0
# MLflow that does not answer is asked less and less often.
MOST_SECONDS = 30.0
BROKEN_SECONDS = 5.0


@contextlib.contextmanager
def mirrored(run: "StepRun", folder: Path) -> Iterator[None]:
    """Follow the worker's file in `folder` for as long as the body takes."""

    def send(lines: Sequence[MetricsLine]) -> None:
        run.tracking.log_curve(run.tracked(), run.step, lines)

    mirror = Mirror(folder / FILE_NAME, send, run.context.log.warning)
    mirror.start()
    try:
        yield
    except BaseException:
        # The last windows of a training that broke are those that people look for; a cancel waits no longer than this.
        mirror.stop(wait_seconds=BROKEN_SECONDS)
        raise
    mirror.stop(wait_seconds=None)


class Mirror(threading.Thread):
    """Sends what is added to a file, in batches; what could not be sent is sent again with what came after it."""

    def __init__(
        self,
        path: Path,
        send: Callable[[Sequence[MetricsLine]], None],
        tell: Callable[[str], object],
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        super().__init__(name=f"mirror of {path}", daemon=True)
        self._path, self._send, self._tell, self._every = path, send, tell, every_seconds
        self._waiting: list[MetricsLine] = []
        self._offset = 0
        self._told = False
        self._ended = threading.Event()

    def run(self) -> None:
        """Until stop() is called, and once more."""
        pause = self._every
        while not self._ended.wait(pause):
            pause = self._every if self.catch_up() else min(2 * pause, MOST_SECONDS)
        self.catch_up()

    def stop(self, wait_seconds: float | None) -> None:
        """Send what is left, and wait for it; None: as long as MLflow's own limits allow."""
        self._ended.set()
        self.join(wait_seconds)

    def catch_up(self) -> bool:
        """Send all that is there and was not sent; False if it has to wait."""
        try:
            found, self._offset = read_from(self._path, self._offset)
            self._waiting += found
            if self._waiting:
                self._send(self._waiting)
                self._waiting = []
        # Whatever a store or a disk raises: the training is worth more than its picture.
        except Exception as error:
            if not self._told:
                self._tell(f"metrics wait, training goes on: {type(error).__name__}: {error}")
            self._told = True
            return False
        self._told = False
        return True
