"""A stop that people can act on, as Dagster shows it: what is wrong, the value and the fix, without a stack.

Dagster keeps a stack trace of every exception but of one kind, an error that another process has put into words. So a
stop is one of these, too, where Dagster has that error; a test holds that the event has no stack.
"""

from __future__ import annotations

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from trainworthy.lifecycle.errors import TrainworthyError, WorkerError
from trainworthy.lifecycle.protocol.checks import CheckResult
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


def error_check(error: TrainworthyError) -> CheckResult:
    """Why a step did not come to its result, as a check that stops it."""
    attempts = error.attempts if isinstance(error, WorkerError) else ()
    details = tuple(attempt.model_dump() for attempt in attempts)
    return CheckResult(
        name="completed", status="error", code=error.code, evidence=error.problem, fix=error.fix, details=details
    )
