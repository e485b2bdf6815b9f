"""A PostgreSQL server of a test's own: on loopback, with its data in a folder that goes with it, never as root."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

USER, PASSWORD = "tester", "s3cret/of tests"
ADDRESS = f"postgresql://{USER}:s3cret%2Fof%20tests@127.0.0.1"


def programs() -> Path | None:
    """The folder of initdb, postgres and pg_ctl; Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    places = (
        [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    return next((place for place in places if (place / "postgres").is_file()), None)


def owner() -> str | None:
    """Who runs the server: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class PostgresServer:
    """The server on a free port; `restart` is what a crash of it looks like."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder, self._process = programs, folder, None
        self.port = free_port()
        (folder / "password").write_text(PASSWORD)
        if (name := owner()) is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, name)
        options = ("--auth=scram-sha-256", "--no-locale", "--encoding=UTF8", "--no-sync", f"--username={USER}")
        self._call("initdb", *options, f"--pwfile={folder / 'password'}", "--pgdata", str(folder / "data"))

    def url(self, database: str = "postgres") -> str:
        return f"{ADDRESS}:{self.port}/{database}"

    def start(self) -> None:
        """Returns once it answers."""
        options = ["-D", str(self._folder / "data"), "-p", str(self.port), "-h", "127.0.0.1"]
        # A crash of the server alone loses nothing that the system was given.
        options += ["-c", "unix_socket_directories=", "-c", "fsync=off"]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *options], stdout=log, stderr=log, user=owner(), cwd=self._folder
            )
        deadline = time.monotonic() + 60
        ready = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, (self._folder / "log").read_text()

    def crash(self) -> None:
        """As `pg_ctl -m immediate`: nothing is written down, connections end at once."""
        assert self._process is not None
        self._call("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Each statement by itself, as the server's owner."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _call(self, program: str, *given: str) -> None:
        done = subprocess.run(
            [self._programs / program, *given], capture_output=True, text=True, user=owner(), cwd=self._folder,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server; skips where there is none to run."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed: make setup")
    # Not below pytest's folder, which its owner alone may enter.
    with tempfile.TemporaryDirectory(prefix="trainworthy-postgresql-") as folder:
        server = PostgresServer(found, Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()
