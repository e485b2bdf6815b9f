"""A fresh process that loads one artifact and answers with it when it is asked to.

It is forked, so that it costs no imports, and two models share nothing: neither modules nor memory, nor what the code
of one sets for its whole process (threads, default types). Questions and answers go over a pipe as JSON, since a pickle
would run code.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from trainworthy.lifecycle.artifact import Scorer, load_artifact
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.latency import clocks_here, timed_call
from trainworthy.lifecycle.memory_limit import value_in
from trainworthy.lifecycle.protocol.jobs import ServedArtifact, ServingJob
from trainworthy.lifecycle.serving.ratio import Span
from trainworthy.lifecycle.task import error_line

_SELF = Path("/proc/self")
_MIB = 2**20
# A clock that shows nothing has not moved by so many seconds.
_TICK = 1e-9
_PAGE_KB = 4


class Pipe(Protocol):
    """One end of multiprocessing's pipe, of which Windows has another than others."""

    def send_bytes(self, buf: bytes, /) -> None: ...
    def recv_bytes(self) -> bytes: ...
    def close(self) -> None: ...


class ServingError(RuntimeError):
    """A model could not be loaded or did not answer; the message says which and why."""


class Served:
    """The other end of a process that serves a model."""

    def __init__(self, name: str, process: ForkProcess, connection: Pipe) -> None:
        self._name, self._process, self._connection = name, process, connection

    def ready(self) -> None:
        """Wait until the process has its rows. Raises ServingError."""
        self._ask("ready")

    def load(self) -> tuple[Span, float | None]:
        """Seconds from opening the artifact to its first answer, and MiB by which the peak rose until a batch was
        answered, None where the system does not tell. Raises ServingError.
        """
        answer = self._ask("load")
        return Span(*answer["seconds"]), answer["mib"]

    def call(self, question: str) -> Span:
        """Seconds of an answer to `one` row or to the `batch`. Raises ServingError."""
        return Span(*self._ask(question)["seconds"])

    def modules(self) -> set[str]:
        """What the process has imported. Raises ServingError."""
        return set(self._ask("modules")["names"])

    def _ask(self, question: str) -> dict[str, Any]:
        try:
            self._connection.send_bytes(question.encode())
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            raise ServingError(f"the {self._name}'s process ended without an answer (exit code {code})") from None
        if "error" in answer:
            raise ServingError(f"the {self._name} could not be served: {answer['error']}")
        return answer


@contextlib.contextmanager
def serving(name: str, artifact: ServedArtifact, job: ServingJob, rows: int) -> Iterator[Served]:
    """A process for this artifact, with so many of the job's rows to answer; it is ended behind the block."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe()
    process = context.Process(target=_serve, args=(its, mine, artifact, job, rows), daemon=False)
    process.start()
    its.close()
    try:
        served = Served(name, process, mine)
        # No process reads its rows while another is timed.
        served.ready()
        yield served
    finally:
        # It ends when nobody can ask any more, and one that computes without end does not keep us.
        mine.close()
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(connection: Pipe, others_end: Pipe, artifact: ServedArtifact, job: ServingJob, rows: int) -> None:
    """In the process: answer questions until the other end is closed."""
    others_end.close()
    try:
        columns = job.rows.model_copy(update={"features": artifact.features})
        questions = _questions(artifact, read_rows(job.rows_file, columns, limit=rows))
        while True:
            _tell(connection, questions[connection.recv_bytes().decode()]())
    except EOFError:
        return
    except Exception as error:
        sensitive = bool(job.rows.sensitive)
        problem = error.problem if isinstance(error, TrainworthyError) else ""
        _tell(connection, {"error": problem or error_line(error, Path(artifact.path) / "code", sensitive=sensitive)})


def _tell(connection: Pipe, answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        connection.send_bytes(json.dumps(answer).encode())


def _questions(artifact: ServedArtifact, rows: pd.DataFrame) -> dict[str, Callable[[], dict[str, Any]]]:
    """What answers each question; all but `ready` come after `load`."""
    clocks, loaded, calls = clocks_here(), list[Scorer](), iter(range(2**62))

    def timed(answer: Callable[[], object]) -> dict[str, Any]:
        figures = timed_call(lambda _: answer(), 0, clocks)
        return {"seconds": [max(figures[bound], _TICK) for bound in ("least_ms", "most_ms")]}

    def answer_row() -> object:
        return loaded[0](rows.iloc[[next(calls) % len(rows)]])

    def first() -> object:
        loaded.append(load_artifact(Path(artifact.path), artifact.sha256))
        return answer_row()

    def load() -> dict[str, Any]:
        before = _peak_from_now_on()
        timing = timed(first)
        loaded[0](rows)
        peak = value_in(_SELF / "status", "VmHWM:")
        # A page at least, which is what the kernel counts.
        rose = None if before is None or peak is None else max(peak - before, _PAGE_KB) * 1024 / _MIB
        return timing | {"mib": rose}

    return {
        "ready": dict,
        "load": load,
        "one": lambda: timed(answer_row),
        "batch": lambda: timed(lambda: loaded[0](rows)),
        "modules": lambda: {"names": sorted(sys.modules)},
    }


def _peak_from_now_on() -> int | None:
    """Begin the peak of this process' memory anew; it is now so many kB. None where the system does not let."""
    try:
        (_SELF / "clear_refs").write_text("5")
    except OSError:
        return None
    return value_in(_SELF / "status", "VmHWM:")
