"""Around each start of a worker under Dagster: its attempt is entered, gives signs of life, and gets its end.

An end is written to a file below `attempts/ends` of the state folder before it goes to the database, so that neither a
database that is away nor a second Ctrl-C loses it: the next start of a worker enters it, or `trainworthy doctor --fix`.
They also end what nobody else can any more, the attempts whose process is gone.
"""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from trainworthy.lifecycle.earlier_ends import EarlierEnds, earlier_ends
from trainworthy.lifecycle.errors import AttemptError, TrainworthyError, WorkerError
from trainworthy.lifecycle.protocol.attempts import (
    AttemptOutcome,
    AttemptRow,
    ChargedTo,
    EndedAttempt,
    Process,
    StartedAttempt,
)
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob
from trainworthy.lifecycle.protocol.training_figures import Cause
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.resources.settings import Settings, read_settings
from trainworthy.resources.stuck_runs import lives, pid_space

if TYPE_CHECKING:
    from trainworthy.resources.attempt_table import AttemptTable

# Between two signs of life of an attempt.
BEAT_SECONDS = 30.0
# How long a write is tried where nothing may be lost: a database that restarts is back by then.
PATIENCE_SECONDS = 20.0
# An attempt of another machine or container, whose processes cannot be looked at, is lost after so long without a sign.
SILENT_SECONDS = 3600.0
# Of a training's attempts, the newest that may count: more than any budget of tries allows, with those that count for
# nothing in between.
MOST_LOOKED_AT = 200
# Of what ended it: a message may be long, and quotes what was raised.
_MESSAGE_CHARACTERS = 500
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 4.0
Given = TypeVar("Given")


class Log(Protocol):
    """Where a run is told of its attempts."""

    def info(self, line: str, /) -> None: ...
    def warning(self, line: str, /) -> None: ...
    def error(self, line: str, /) -> None: ...


@contextlib.contextmanager
def recorded(
    job: AnyJob, charged_to: ChargedTo, log: Log, *, launcher: str = "local", world_size: int = 1
) -> Iterator[OpenAttempt]:
    """Around a start of a worker, which calls `begin` of what is given; its end is entered on any way out.

    `begin` raises AttemptError or SettingsError if a training's attempt cannot be entered; a question goes on without.
    """
    attempt = OpenAttempt(job, charged_to, log, launcher, world_size)
    try:
        yield attempt
    except WorkerError as error:
        attempt.end("failed", error.problem, error.cause, error.exit_code)
        raise
    except Exception as error:
        # No cause: what failed is not the worker but its machine, Dagster's database or a log beside it.
        told = error.problem if isinstance(error, TrainworthyError) else f"{type(error).__name__}: {error}"
        attempt.end("failed", told)
        raise
    except BaseException as error:
        attempt.end("cancelled", type(error).__name__)
        raise
    attempt.end("answered", exit_code=0)


class OpenAttempt:
    """One start of a worker, entered by `begin`; where it was not entered, the rest does nothing."""

    def __init__(self, job: AnyJob, charged_to: ChargedTo, log: Log, launcher: str, world_size: int) -> None:
        self._job, self._charged_to, self._log = job, charged_to, log
        self._launcher, self._world_size = launcher, world_size
        self._started: StartedAttempt | None = None
        # By the clock that nobody sets: its start, and its newest sign of life.
        self._since = self._beaten = 0.0
        self._was_away = False
        # Seconds since its start in which it waited for a machine.
        self._waited = 0.0

    def begin(self) -> None:
        """Enter the attempt, just before its worker is started. Raises as `recorded` says."""
        started = started_attempt(self._job, self._charged_to, self._launcher, self._world_size)
        training = isinstance(self._job, TrainJob)

        def enter() -> None:
            for line in settle(settings := read_settings()):
                self._log.info(line)
            _table(settings).start(started)

        try:
            patiently(enter, PATIENCE_SECONDS if training else 0.0)
        except TrainworthyError as error:
            if training:
                raise
            self._log.warning(f"{self._job.kind}: not in the table of attempts, so its cost is missing there: {error}")
            return
        self._started, self._since = started, time.monotonic()
        self._beaten = self._since

    def look(self) -> None:
        """A sign of life, every BEAT_SECONDS at most. A database that is away is told once, and not waited for."""
        if self._started is None or time.monotonic() - self._beaten < BEAT_SECONDS:
            return
        self._beaten = time.monotonic()
        try:
            _table(read_settings()).beat(self._started.attempt, time.time())
        except TrainworthyError as error:
            if not self._was_away:
                self._log.warning(f"{self._job.kind}: no sign of life in the table of attempts: {error}")
            self._was_away = True

    def waited(self, seconds: float) -> None:
        """So long it has waited for a machine since it was entered, which is no part of what it costs."""
        self._waited = seconds

    def end(
        self, outcome: AttemptOutcome, message: str = "", cause: Cause | None = None, exit_code: int | None = None
    ) -> None:
        """Enter the end. One that cannot be entered is kept and told: what ended the worker is what is raised."""
        if self._started is None:
            return
        ended = EndedAttempt(
            attempt=self._started.attempt,
            outcome=outcome,
            ended_at=time.time(),
            seconds=max(0.0, time.monotonic() - self._since - self._waited),
            cause=cause,
            told=_storable(message),
            exit_code=exit_code,
            to_step=reached_step(Path(self._job.out)) if isinstance(self._job, TrainJob) else None,
        )
        settings = read_settings()
        try:
            kept_at: Path | None = keep_end(settings, ended)
        except OSError as error:
            self._log.error(f"{self._job.kind}: the end of its attempt cannot be kept on the disk: {error}")
            kept_at = None
        try:
            stands = patiently(lambda: _table(settings).end(ended), PATIENCE_SECONDS)
        except TrainworthyError as error:
            where = (
                f"is kept in {kept_at}; the next run enters it, or trainworthy doctor --fix" if kept_at else "is lost"
            )
            self._log.error(f"{self._job.kind}: the end of its attempt {where}: {ended.model_dump_json()}\n{error}")
            return
        if kept_at is not None:
            kept_at.unlink(missing_ok=True)
        if stands != ended:
            self._log.warning(
                f"{self._job.kind}: its attempt had been ended before, as {stands.outcome}: {stands.told}"
            )


def started_attempt(job: AnyJob, charged_to: ChargedTo, launcher: str, world_size: int) -> StartedAttempt:
    """The attempt of a worker that this process is about to start."""
    training = isinstance(job, TrainJob)
    return StartedAttempt(
        attempt=uuid.uuid4().hex,
        charged_to=charged_to,
        job_kind=job.kind,
        stage=Path(job.out).name if training else None,
        launcher=launcher,
        process=this_process(),
        device=job.device,
        world_size=world_size,
        from_step=reached_step(Path(job.out)) if training else None,
        started_at=time.time(),
    )


def ends_before(job: TrainJob, charged_to: ChargedTo, log: Log) -> EarlierEnds:
    """The ends of this training in the table that count before it starts. Raises AttemptError or SettingsError."""
    settings, like = read_settings(), started_attempt(job, charged_to, "", 1)

    def read() -> tuple[AttemptRow, ...]:
        for line in settle(settings):
            log.info(line)
        return _table(settings).rows(of=like, most=MOST_LOOKED_AT)

    rows = patiently(read, PATIENCE_SECONDS)
    return earlier_ends(rows, like.from_step or 0, like.process.host)


def this_process() -> Process:
    """This process, as others can look for it."""
    import psutil

    own = psutil.Process()
    return Process(host=socket.gethostname(), pid_space=pid_space(), pid=own.pid, started=own.create_time())


def patiently(write: Callable[[], Given], seconds: float, wait: Callable[[float], None] = time.sleep) -> Given:
    """What `write` gives, tried again for `seconds` where it raises AttemptError."""
    give_up, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while True:
        try:
            return write()
        except AttemptError:
            if time.monotonic() + pause > give_up:
                raise
        wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def settle(settings: Settings) -> list[str]:
    """Enter the ends that were kept, then end the attempts that are lost; a line for each. Raises AttemptError."""
    entered = [f"the end of attempt {path.stem[:8]} is entered, which was kept" for path in _enter_kept(settings)]
    return entered + [
        f"attempt {row.started.attempt[:8]} ({_named(row)}) is lost: {why}" for row, why in _end_lost(settings)
    ]


def keep_end(settings: Settings, ended: EndedAttempt) -> Path:
    """The file that has the end until the database has it."""
    path = _kept_folder(settings) / f"{ended.attempt}.json"
    write_atomic(path, ended.model_dump_json().encode())
    return path


def kept_ends(settings: Settings) -> list[Path]:
    """Files with ends that are not in the database."""
    return sorted(_kept_folder(settings).glob("*.json"))


def _kept_folder(settings: Settings) -> Path:
    return settings.var / "attempts" / "ends"


def _enter_kept(settings: Settings) -> Iterator[Path]:
    """Gives those whose own process had given up; the others are just on their way, of a run beside this one."""
    for path in kept_ends(settings):
        try:
            given_up = time.time() - path.stat().st_mtime > PATIENCE_SECONDS
            ended = EndedAttempt.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            continue  # Another process has entered it.
        except ValueError:
            fix = "remove it; the attempt is then lost, up to its last sign of life"
            raise AttemptError("a kept end of an attempt cannot be read", value=str(path), fix=fix) from None
        _table(settings).end(ended)
        path.unlink(missing_ok=True)
        if given_up:
            yield path


def lost_attempts(settings: Settings) -> list[tuple[AttemptRow, str]]:
    """Open attempts whose process is gone, each with how that is known. Raises AttemptError."""
    here, now = this_process(), time.time()
    looked_at = ((row, why_lost(row, here, now)) for row in _table(settings).rows(only_open=True))
    return [(row, why) for row, why in looked_at if why]


def why_lost(row: AttemptRow, here: Process, now: float) -> str:
    """How it is known that nobody works on an open attempt any more; "" if it is not known."""
    process = row.started.process
    if (process.host, process.pid_space) == (here.host, here.pid_space):
        return "" if lives(process.pid, process.started) else f"its process (pid {process.pid}) is gone"
    silent = now - row.last_sign
    return f"no sign of life from {process.host} for {silent / 3600:.1f} h" if silent > SILENT_SECONDS else ""


def _end_lost(settings: Settings) -> Iterator[tuple[AttemptRow, str]]:
    for row, why in lost_attempts(settings):
        ended = EndedAttempt(
            attempt=row.started.attempt, outcome="lost", ended_at=time.time(), seconds=row.seconds, told=why
        )
        if _table(settings).end(ended) == ended:
            yield row, why


def _named(row: AttemptRow) -> str:
    charged_to = row.started.charged_to
    return f"{charged_to.use_case} {charged_to.step}, run {charged_to.run_id[:8]}"


def _table(settings: Settings) -> AttemptTable:
    """SQLAlchemy takes a third of a second to import, and definitions load without it."""
    from trainworthy.resources.attempt_table import attempt_table

    return attempt_table(settings)


def _storable(message: str) -> str:
    """A message as any database takes it: valid text, no zero byte, and not endless."""
    return message.encode("utf-8", "replace").decode().replace("\0", "")[:_MESSAGE_CHARACTERS]
