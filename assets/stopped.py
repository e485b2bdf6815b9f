"""A stop that people can act on, as Dagster shows it: what is wrong, the value and the fix, without a stack.

Dagster keeps a stack trace of every exception but of one kind, an error that another process has put into words. So a
stop is one of these, too, where Dagster has that error; a test holds that the event has no stack.
"""

from __future__ import annotations

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from trainworthy.resources.dagster_private import DagsterPrivateError

try:
    from trainworthy.resources.dagster_private import DagsterUserCodeProcessError
except DagsterPrivateError:
    DagsterUserCodeProcessError = Exception


class StoppedError(dg.Failure, DagsterUserCodeProcessError):  # pyright: ignore[reportGeneralTypeIssues]
    """Ends a step for good: the same run again would end the same way."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.description = message
        self.metadata = {}
        self.allow_retries = False
        self.user_code_process_error_infos = [SerializableErrorInfo(message, [], StoppedError.__name__)]
