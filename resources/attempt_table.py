"""The table of attempts in SQLite or PostgreSQL. Rows are added and read, never changed and never removed.

Every write has a connection of its own: seldom enough to cost little, and a server that was restarted in between is
met anew. A write may be repeated, since an attempt is entered once, and ends once: the first end of it stands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    MetaData,
    NullPool,
    String,
    Table,
    Text,
    create_engine,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from trainworthy.lifecycle.errors import AttemptError, SettingsError
from trainworthy.lifecycle.protocol.attempts import AttemptRow, ChargedTo, EndedAttempt, Process, StartedAttempt
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.resources.settings import DATABASE, Settings

# In the state folder, where no other database is named.
FILE = "attempts.db"
# A database that does not answer for so long is away. Heartbeats are written where a worker is waited for.
ANSWER_SECONDS = 5
_DRIVER = "postgresql+psycopg"
# Processes that make the tables at once wait for each other under this number.
_MAKING = 7_206_501_483
_ALL = MetaData()
_CHARGED = ("run_id", "use_case", "step", "identity", "dataset", "sku", "usd_per_hour")
ATTEMPTS = Table(
    "attempts",
    _ALL,
    Column("attempt", String(32), primary_key=True),
    *(Column(name, Text, nullable=False) for name in _CHARGED[:-1]),
    Column("usd_per_hour", Double, nullable=False),
    *(Column(name, Text, nullable=name == "stage") for name in ("job_kind", "stage", "launcher", "device")),
    *(Column(name, Text, nullable=False) for name in ("host", "pid_space")),
    Column("pid", Integer, nullable=False),
    Column("process_started", Double, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("from_step", BigInteger),
    Column("started_at", Double, nullable=False),
    Index("attempts_by_start", "started_at"),
)
HEARTBEATS = Table(
    "attempt_heartbeats",
    _ALL,
    Column("attempt", String(32), primary_key=True),
    Column("at", Double, primary_key=True),
)
ENDS = Table(
    "attempt_ends",
    _ALL,
    Column("attempt", String(32), primary_key=True),
    Column("outcome", Text, nullable=False),
    Column("ended_at", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("cause", Text),
    Column("told", Text, nullable=False),
    Column("exit_code", Integer),
    Column("to_step", BigInteger),
)


def attempt_table(settings: Settings) -> AttemptTable:
    """The table that the settings name. Raises SettingsError for an address that is none of PostgreSQL."""
    if settings.database:
        return AttemptTable(database_url(settings.database))
    return AttemptTable(URL.create("sqlite", database=str(settings.var / FILE)))


def database_url(named: str) -> URL:
    """The address in TRAINWORTHY_DATABASE. Raises SettingsError, which never tells the password."""
    fix = f"write postgresql://USER:PASSWORD@HOST:PORT/NAME to {DATABASE}, or unset it for SQLite in the state folder"
    shown = without_credentials(named) if "://" in named else None
    try:
        url = make_url(named)
    except (SQLAlchemyError, ValueError):
        raise SettingsError("TRAINWORTHY_DATABASE holds no address of a database", value=shown, fix=fix) from None
    if url.drivername not in ("postgresql", _DRIVER):
        raise SettingsError("TRAINWORTHY_DATABASE names no PostgreSQL database", value=shown, fix=fix)
    if "@" in (url.host or ""):
        fix = "write each @ of the user and the password as %40"
        raise SettingsError("TRAINWORTHY_DATABASE has more than one @", value=shown, fix=fix)
    return url.set(drivername=_DRIVER)


class AttemptTable:
    """Attempts, their heartbeats and their ends. Every method raises AttemptError if the database cannot do it."""

    def __init__(self, url: URL) -> None:
        self._file = url.database if url.get_backend_name() == "sqlite" else None
        self.shown = self._file or without_credentials(url.render_as_string())
        self._engine, self._made = _engine(url, self._file), False

    def start(self, started: StartedAttempt) -> None:
        """Enter an attempt; once more changes nothing."""
        flat = started.model_dump(exclude={"charged_to", "process"}) | started.charged_to.model_dump()
        process = started.process
        flat |= {"host": process.host, "pid_space": process.pid_space, "pid": process.pid}
        self._add(ATTEMPTS, flat | {"process_started": process.started})

    def beat(self, attempt: str, at: float) -> None:
        """A sign of life of an open attempt."""
        self._add(HEARTBEATS, {"attempt": attempt, "at": at})

    def end(self, ended: EndedAttempt) -> EndedAttempt:
        """Enter the end of an attempt, unless it has one; gives the end that stands."""
        self._add(ENDS, ended.model_dump())
        with self._reading() as connection:
            row = connection.execute(select(ENDS).where(ENDS.c.attempt == ended.attempt)).mappings().one()
            return EndedAttempt.model_validate(dict(row))

    def rows(
        self, use_case: str = "", *, only_open: bool = False, of: StartedAttempt | None = None, most: int | None = None
    ) -> tuple[AttemptRow, ...]:
        """Attempts, newest first: of one use case, or those without an end, or the newest ones; () of no table yet.

        With `of` those of the same training: by the same step of equal identity, at the same stage.
        """
        if not self._exists():
            return ()
        beat = select(func.max(HEARTBEATS.c.at)).where(HEARTBEATS.c.attempt == ATTEMPTS.c.attempt).scalar_subquery()
        ends = [column.label(f"end_{column.name}") for column in ENDS.c]
        query = select(ATTEMPTS, beat.label("beat"), *ends).outerjoin(ENDS, ENDS.c.attempt == ATTEMPTS.c.attempt)
        query = query.where(ATTEMPTS.c.use_case == use_case) if use_case else query
        query = query.where(ENDS.c.attempt.is_(None)) if only_open else query
        query = query.where(*_same_training(of)) if of is not None else query
        query = query.order_by(ATTEMPTS.c.started_at.desc(), ATTEMPTS.c.attempt).limit(most)
        with self._reading() as connection:
            return tuple(_row(dict(row)) for row in connection.execute(query).mappings())

    def try_write(self) -> None:
        """Write a row and take it back, where the table is there; once it is, nothing else is needed to add rows."""
        if not self._exists():
            return
        with (
            _database_errors(f"the table of attempts in {self.shown} cannot be written", self._fix),
            self._engine.connect() as connection,
        ):
            connection.execute(HEARTBEATS.insert().values(attempt="", at=0.0))
            connection.rollback()

    def _exists(self) -> bool:
        """False also where SQLite would make the file of being asked."""
        if self._file is not None and not Path(self._file).exists():
            return False
        with self._reading() as connection:
            return inspect(connection).has_table(ENDS.name)

    def _add(self, table: Table, values: dict[str, Any]) -> None:
        """Once more changes nothing, so that whoever got no answer may try again."""
        insert = (postgresql if self._file is None else sqlite).insert(table)
        with _database_errors(f"the table of attempts in {self.shown} cannot be written", self._fix):
            if not self._made:
                _make(self._engine, shared=self._file is None)
                self._made = True
            with self._engine.begin() as connection:
                self._limit(connection)
                connection.execute(insert.values(values).on_conflict_do_nothing())

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        problem = f"the table of attempts in {self.shown} cannot be read"
        with _database_errors(problem, self._fix), self._engine.begin() as connection:
            self._limit(connection)
            yield connection

    def _limit(self, connection: Connection) -> None:
        """In each transaction and not for the connection, which a pooler in between may hand to others."""
        if self._file is None:
            connection.execute(text(f"SET LOCAL statement_timeout = {1000 * ANSWER_SECONDS}"))

    @property
    def _fix(self) -> str:
        if self._file is not None:
            return "make the file and its folder writable and free space there; a damaged file: move it away"
        return f"let the server be reached from here, with rights to read and add rows, or correct {DATABASE}"


def _engine(url: URL, file: str | None) -> Engine:
    """Raises SettingsError without the driver."""
    if file is not None:
        return create_engine(url, poolclass=NullPool, connect_args={"timeout": ANSWER_SECONDS})
    limits = {"connect_timeout": ANSWER_SECONDS, "tcp_user_timeout": 1000 * ANSWER_SECONDS}
    try:
        return create_engine(url, poolclass=NullPool, connect_args=limits, hide_parameters=True)
    except ModuleNotFoundError as error:
        fix = f"pip install 'trainworthy[postgresql]', or unset {DATABASE}"
        raise SettingsError("PostgreSQL needs a package that is not installed", value=error.name, fix=fix) from None


def _make(engine: Engine, *, shared: bool) -> None:
    """The tables, where they are not there: a user who may only add rows needs no more than that."""
    with engine.begin() as connection:
        if inspect(connection).has_table(ENDS.name):
            return
        # All three at once: whoever sees one of them may write to each.
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_MAKING})" if shared else "BEGIN IMMEDIATE"))
        for table in _ALL.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))


@contextlib.contextmanager
def _database_errors(problem: str, fix: str) -> Iterator[None]:
    """What the database says as an AttemptError, in its own first line."""
    try:
        yield
    except SQLAlchemyError as error:
        said = str(error.orig if isinstance(error, DBAPIError) else error).strip().partition("\n")[0]
        raise AttemptError(f"{problem}: {said}", fix=fix) from None


def _same_training(one: StartedAttempt) -> Iterator[ColumnElement[bool]]:
    values = one.charged_to.model_dump() | {"job_kind": one.job_kind, "stage": one.stage}
    return (ATTEMPTS.c[name] == values[name] for name in ("use_case", "step", "identity", "job_kind", "stage"))


def _row(values: dict[str, Any]) -> AttemptRow:
    started = StartedAttempt(
        charged_to=ChargedTo(**{name: values[name] for name in _CHARGED}),
        process=Process(
            host=values["host"], pid_space=values["pid_space"], pid=values["pid"], started=values["process_started"]
        ),
        **{name: values[name] for name in StartedAttempt.model_fields if name not in ("charged_to", "process")},
    )
    end = {column.name: values[f"end_{column.name}"] for column in ENDS.c}
    ended = None if end["attempt"] is None else EndedAttempt.model_validate(end)
    return AttemptRow(started=started, last_sign=values["beat"] or started.started_at, ended=ended)
