"""A stop that people can act on, as Dagster shows it: what is wrong, the value and the fix, without a stack.

Dagster keeps a stack trace of every exception but of one kind, an error that another process has put into words. So a
stop is one of these, too; a test holds that the event has no stack, whatever a later Dagster does.
"""

from __future__ import annotations

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo


class StoppedError(dg.Failure, DagsterUserCodeProcessError):
    """Ends a step for good: the same run again would end the same way."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.description = message
        self.metadata = {}
        self.allow_retries = False
        self.user_code_process_error_infos = [SerializableErrorInfo(message, [], StoppedError.__name__)]
