"""What the machine does while a stage trains, as MLflow's own system metrics: CPU and memory, every ten seconds.

Of the machine that the step runs on; where a launcher sends the worker elsewhere, there is none. A picture beside
the windows and nothing that decides: what MLflow does not take at its time is left out.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

EVERY_SECONDS = 10.0
# How long a sample that is being sent may keep a stage waiting.
END_SECONDS = 2.0


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
    """Send the machine's figures for as long as the body takes; the first after EVERY_SECONDS."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(send, ended), name="system metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_SECONDS)


def _follow(send: Callable[[Mapping[str, float]], None], ended: threading.Event) -> None:
    # The first answer counts from here.
    machine_figures()
    while not ended.wait(EVERY_SECONDS):
        # Whatever a store raises: the training is worth more than its picture.
        with contextlib.suppress(Exception):
            send(machine_figures())
