"""The console of `dagster job execute`: one short line for what people want to know."""

from __future__ import annotations

import logging
import sys

import dagster as dg

from trainworthy.assets.stopped import StoppedError
from trainworthy.lifecycle.progress import was_shown

# The worker ended at a step boundary, and its checkpoint is whole.
INTERRUPTED = "interrupted: what was spent is booked; the same command again resumes from the last checkpoint"


class _Formatter(logging.Formatter):
    """Time, step, message. A gate's stop shows its own message once, without the stack of the machinery."""

    def format(self, record: logging.LogRecord) -> str:
        meta = getattr(record, "dagster_meta", {}) or {}
        step = (meta.get("step_key") or "").split("__")[-1]
        message = meta.get("orig_message") or record.getMessage()
        event = meta.get("dagster_event")
        if (pool := _awaited_pool(event)) is not None:
            # The slot of a run that was killed with everything is never given back by itself.
            message = f"waiting for a slot of the pool {pool}; if no other run holds it: trainworthy doctor"
        was_shown()
        error = getattr(getattr(event, "event_specific_data", None), "error", None)
        if error is not None and event is not None and event.event_type_value == "STEP_FAILURE":
            error_message = error.message.strip()
            if error.cls_name == dg.DagsterExecutionInterruptedError.__name__:
                return f"{self.formatTime(record, '%H:%M:%S')} {step:<10} {INTERRUPTED}"
            # Only a bug of ours, or in a use case's code, needs its stack.
            message = error_message if error.cls_name == StoppedError.__name__ else f"{message}\n{error.to_string()}"
        return f"{self.formatTime(record, '%H:%M:%S')} {step:<10} {message}"


# After a stop Dagster names every later step, and tells of the worker's end; the reason and its fix shall stay the
# last lines.
NOISE = ("[pipes] external process", "[pipes] did not receive closed message", "Not executing.")


class _Chosen(logging.Filter):
    """Our own lines, and Dagster's about failures; the rest is in the UI's event log."""

    def filter(self, record: logging.LogRecord) -> bool:
        event = (getattr(record, "dagster_meta", {}) or {}).get("dagster_event")
        if event is None:
            return record.levelno > logging.DEBUG and not any(text in record.getMessage() for text in NOISE)
        return event.event_type_value == "STEP_FAILURE" or _awaited_pool(event) is not None


def _awaited_pool(event: dg.DagsterEvent | None) -> str | None:
    """The pool that a step waits for, if the event says so."""
    if event is None or event.event_type_value != "ENGINE_EVENT":
        return None
    pool = event.engine_event_data.metadata.get("pool")
    return None if pool is None else str(pool.value)


def _make(init_context: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("trainworthy", level=logging.DEBUG)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    handler.addFilter(_Chosen())
    logger.addHandler(handler)
    return logger


console = dg.LoggerDefinition(_make, description="Short lines on stderr; replaces Dagster's console logger.")
