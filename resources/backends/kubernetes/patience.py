"""How long a request is tried again that an API which is away or busy has refused, and by which clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends.kubernetes.api import AwayError

# Where nobody's work is waited for: a server that restarts is back by then.
PATIENCE_SECONDS = 60.0
# The longest that a busy server's Retry-After is obeyed, and the pause where it names none.
LONGEST_WAIT_SECONDS, PAUSE_SECONDS = 30.0, 2.0
Given = TypeVar("Given")


@dataclass(frozen=True)
class Time:
    """The clock that nobody sets, and how one waits by it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def patiently(request: Callable[[], Given], about: str, clock: Time) -> Given:
    """What a request about a Job gives. Raises BackendError if the API is away for PATIENCE_SECONDS."""
    give_up = clock.now() + PATIENCE_SECONDS
    while True:
        try:
            return request()
        except AwayError as error:
            if clock.now() > give_up:
                fix = "kubectl get jobs tells whether it can be reached; a Job that was left is ended by the next run"
                problem = f"the cluster's API cannot be reached: {error}"
                raise BackendError(problem, value=about, fix=fix) from None
            pause(error, clock)


def pause(error: Exception, clock: Time) -> None:
    """Wait as long as a busy server asks for, within bounds."""
    wait_seconds = error.wait if isinstance(error, AwayError) else None
    clock.sleep(min(PAUSE_SECONDS if wait_seconds is None else wait_seconds, LONGEST_WAIT_SECONDS))
