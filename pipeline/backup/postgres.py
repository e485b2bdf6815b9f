"""Databases of PostgreSQL by its own programs: pg_dump gives one moment of one, pg_restore all of it or nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.provenance import without_credentials

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.engine import URL

# A server that does not answer for so long is away.
CONNECT_SECONDS = 10
_DRIVER = "postgresql+psycopg"
_PACKAGE = (
    "install PostgreSQL's client programs, of the server's version or a newer one: apt-get install postgresql-client "
    "(Debian, Ubuntu), dnf install postgresql (Fedora, RHEL), brew install libpq (macOS)"
)
# In the order in which they can be dropped: a table takes its sequences with it, and they cannot go before.
_KINDS = ("TABLE", "VIEW", "ROUTINE", "TYPE", "SEQUENCE", "SCHEMA")
# All that pg_restore could have made, without what an extension or the system brings.
_OBJECTS = """
SELECT kind, name FROM (
  SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END AS kind,
    oid::regclass::text AS name, oid, 'pg_class'::regclass AS catalog, relnamespace AS schema
  FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'S')
  UNION ALL SELECT 'ROUTINE', oid::regprocedure::text, oid, 'pg_proc'::regclass, pronamespace FROM pg_proc
  UNION ALL SELECT 'TYPE', oid::regtype::text, oid, 'pg_type'::regclass, typnamespace
  FROM pg_type WHERE typtype IN ('e', 'd')
  UNION ALL SELECT 'SCHEMA', oid::regnamespace::text, oid, 'pg_namespace'::regclass, oid
  FROM pg_namespace WHERE nspname <> 'public'
) AS made
WHERE schema::regnamespace::text !~ '^(pg_|information_schema)'
  AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = catalog AND objid = made.oid AND deptype = 'e')
"""


@dataclass(frozen=True)
class Database:
    """One database and what lies in it: names as in Manifest.dumps. `address` may hold a password."""

    holds: tuple[str, ...]
    address: str = field(repr=False)

    @property
    def shown(self) -> str:
        """Its address without user and password."""
        return without_credentials(self.address)


def databases(named: dict[str, str]) -> list[Database]:
    """The databases of these addresses by what lies in each: an address that comes twice is one of them.

    Raises BackupError for an address that is none of PostgreSQL.
    """
    by_place: dict[tuple[object, ...], Database] = {}
    for holds, address in named.items():
        url = _url(holds, address)
        place = (url.host, url.port or 5432, url.database)
        before = by_place[place].holds if place in by_place else ()
        by_place[place] = Database(holds=(*before, holds), address=address)
    return list(by_place.values())


def dump(database: Database, into: Path) -> None:
    """Write one moment of it. Raises BackupError in pg_dump's words, without user and password."""
    into.parent.mkdir(parents=True, exist_ok=True)
    # Owners and rights are those of one server: whoever restores owns what comes of it.
    given = ["--format=custom", "--no-owner", "--no-privileges", "--file", str(into)]
    _call("pg_dump", database, given)


def restore(database: Database, dumped: Path) -> None:
    """Make all that was dumped, in one transaction. Raises BackupError in pg_restore's words; nothing is made then."""
    given = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", str(dumped)]
    _call("pg_restore", database, given)


def readable(dumped: Path) -> bool:
    """True if pg_restore can list what was dumped. Raises BackupError without the program."""
    done = subprocess.run([_program("pg_restore"), "--list", str(dumped)], capture_output=True, check=False)
    return done.returncode == 0


def objects(database: Database) -> list[str]:
    """What somebody made in it, each as DROP takes it: `TABLE attempts`. Raises BackupError if it does not answer."""
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    engine = _engine(database)
    try:
        with engine.connect() as connection:
            rows = sorted(connection.execute(text(_OBJECTS)), key=lambda row: (_KINDS.index(row[0]), row[1]))
            return [f"{kind} {name}" for kind, name in rows]
    except SQLAlchemyError as error:
        reason = without_credentials(str(getattr(error, "orig", error)).strip().partition("\n")[0])
        fix = "start the server, make the database (CREATE DATABASE …), or correct its address"
        raise BackupError(f"a database does not answer: {reason}", value=database.shown, fix=fix) from None
    finally:
        engine.dispose()


def emptied(database: Database) -> None:
    """Take away all that lies in a database that was empty before this restore: tables, and MLflow's functions."""
    from sqlalchemy import text

    made, engine = objects(database), _engine(database)
    try:
        with engine.begin() as connection:
            for kind_and_name in made:
                kind, _, name = kind_and_name.partition(" ")
                connection.execute(text(f"DROP {kind} IF EXISTS {name} CASCADE".replace(":", "\\:")))
    finally:
        engine.dispose()


def _url(holds: str, address: str) -> URL:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    fix = "write postgresql://USER:PASSWORD@HOST:PORT/NAME, each @ : / % of user and password as %40 %3A %2F %25"
    try:
        url = make_url(address)
    except (SQLAlchemyError, ValueError):
        raise BackupError(f"{holds}: no address of a database", fix=fix) from None
    if url.get_backend_name() != "postgresql" or not url.database:
        shown = without_credentials(address)
        raise BackupError(f"{holds}: no address of a PostgreSQL database", value=shown, fix=fix)
    return url


def _engine(database: Database) -> Engine:
    from sqlalchemy import NullPool, create_engine

    url = _url(", ".join(database.holds), database.address).set(drivername=_DRIVER)
    try:
        return create_engine(
            url, poolclass=NullPool, hide_parameters=True, connect_args={"connect_timeout": CONNECT_SECONDS}
        )
    except ModuleNotFoundError as error:
        fix = "pip install 'trainworthy[postgresql]'"
        raise BackupError("PostgreSQL needs a package that is not installed", value=error.name, fix=fix) from None


def _call(program: str, database: Database, given: list[str]) -> None:
    """Its password goes by the environment: command lines are seen by everybody on the machine."""
    from sqlalchemy.engine import URL

    url = _url(", ".join(database.holds), database.address)
    environment = {**os.environ, "PGCONNECT_TIMEOUT": str(CONNECT_SECONDS)}
    # One in the address's query comes before the other, as for SQLAlchemy.
    password = url.normalized_query.get("password", (url.password,))[0]
    if password is not None:
        environment["PGPASSWORD"] = str(password)
    url = url.difference_update_query(["password"])
    # Made anew: URL.set takes None for "as it is".
    named = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query).render_as_string()
    command = [_program(program), f"--dbname={named}", "--no-password", *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    output = without_credentials(done.stderr.strip().replace(str(password or "\0"), "***"))
    fix = _PACKAGE if "version mismatch" in output else "read its words; the database's log may say more"
    raise BackupError(f"{program} failed: {output}", value=database.shown, fix=fix)


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BackupError(f"the program {name} is missing", value=name, fix=_PACKAGE)
    return path
