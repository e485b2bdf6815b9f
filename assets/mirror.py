"""A stage in MLflow while it trains: a thread follows the worker's metrics.jsonl, another the machine.

Nothing here can stop a training. A window is sent once a checkpoint has it: MLflow forgets no value, and what came
after the checkpoint that a training goes on from is made again. While MLflow does not answer, lines wait; what still
waits when the worker ends is written by track.py from the record, with the same times: MLflow takes equal values once.

What the machine does are MLflow's own system metrics: CPU and memory, every ten seconds, of the machine that the step
runs on; where a launcher sends the worker elsewhere, there are none. What MLflow does not take at its time is left out.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsLine, Windows, read_from
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase

EVERY_SECONDS = 1.0
# MLflow that does not answer is asked less and less often.
MOST_SECONDS = 30.0
# How long the last windows may keep a stage waiting, and one that broke or was cancelled.
END_SECONDS, BROKEN_SECONDS = 30.0, 5.0
MACHINE_EVERY_SECONDS = 10.0
# How long a sample of the machine that is being sent may keep a stage waiting.
MACHINE_END_SECONDS = 2.0


def stage_folder(state: StateFolder, use_case: UseCase, training_run: str, stage: str, seed: int) -> Path:
    """Where the worker of one training of a stage writes; a seed that is not the declared one has its own."""
    seed_part = "" if seed == use_case.spec.training.seed else f"_seed_{seed}"
    return state.folder("training", use_case.name, training_run, f"{stage}{seed_part}")


@contextlib.contextmanager
def mirrored(
    folder: Path, send: Callable[[Sequence[MetricsLine]], None], tell: Callable[[str], object]
) -> Iterator[None]:
    """Follow the worker's file in `folder` for as long as the body takes; `tell` hears what could not be sent."""
    mirror = Mirror(folder / FILE_NAME, send, tell)
    mirror.start()
    try:
        yield
    except BaseException:
        # The last windows of a training that broke are those that people look for.
        mirror.stop(wait_seconds=BROKEN_SECONDS)
        raise
    mirror.stop(wait_seconds=END_SECONDS)


class Mirror(threading.Thread):
    """Sends what is added to a file, in batches; what could not be sent is sent again with what came after it.

    What no checkpoint beside the file has yet waits for the end.
    """

    def __init__(
        self,
        path: Path,
        send: Callable[[Sequence[MetricsLine]], None],
        tell: Callable[[str], object],
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        super().__init__(name=f"mirror of {path}", daemon=True)
        self._path, self._send, self._tell, self._every = path, send, tell, every_seconds
        self._windows = Windows()
        # By key: an alarm's row keys can't be hashed.
        self._sent: dict[tuple[int, str, str | None], MetricsLine] = {}
        self._offset = 0
        self._told = False
        self._ended = threading.Event()

    def run(self) -> None:
        """Until stop() is called, and once more."""
        pause = self._every
        while not self._ended.wait(pause):
            pause = self._every if self.catch_up() else min(2 * pause, MOST_SECONDS)
        self.catch_up()

    def stop(self, wait_seconds: float) -> None:
        """Send what is left, and wait for it so long; what takes longer goes on beside, and comes with the record."""
        self._ended.set()
        self.join(wait_seconds)
        if self.is_alive():
            self._tell(f"MLflow took no windows for {wait_seconds:.0f} s: they come with the stage's record")

    def catch_up(self) -> bool:
        """Send all that holds and was not sent; False if it has to wait."""
        try:
            # Both before the file is read: it has all windows up to this checkpoint, or all there are.
            ended, reached = self._ended.is_set(), reached_step(self._path.parent)
            new_lines, self._offset = read_from(self._path, self._offset)
            self._windows.add(new_lines)
            lines = [line for line in self._windows.lines if ended or line.step <= reached]
            due = [line for line in lines if self._sent.get(line.key) != line]
            if due:
                self._send(due)
                self._sent.update({line.key: line for line in due})
        # Whatever a store or a disk raises: the training is worth more than its picture.
        except Exception as error:
            if not self._told:
                self._tell(f"metrics wait, training goes on: {type(error).__name__}: {error}")
            self._told = True
            return False
        self._told = False
        return True


def machine_figures() -> dict[str, float]:
    """CPU in percent of all cores since the call before, and memory in use, by MLflow's names."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": memory.used / 1e6,
        "system_memory_usage_percentage": memory.percent,
    }


@contextlib.contextmanager
def machine_followed(send: Callable[[Mapping[str, float]], None]) -> Iterator[None]:
    """Send the machine's figures for as long as the body takes; the first after MACHINE_EVERY_SECONDS."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow_machine, args=(send, ended), name="system metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(MACHINE_END_SECONDS)


def _follow_machine(send: Callable[[Mapping[str, float]], None], ended: threading.Event) -> None:
    # The first answer counts from here.
    machine_figures()
    while not ended.wait(MACHINE_EVERY_SECONDS):
        # Whatever a store raises: the training is worth more than its picture.
        with contextlib.suppress(Exception):
            send(machine_figures())
