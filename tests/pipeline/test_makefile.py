"""The Makefile where a set-up was interrupted, moved or is current, and where a port is taken; nothing is installed."""

import os
import shutil
import socket
import subprocess
import sys

import pytest
from toy_project import ROOT

FAKE_PYTHON = """#!/bin/sh
echo "python: $*"
case "$*" in *"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;; esac
case "$*" in *"$FAIL_AT"*) exit 1;; esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A folder with the Makefile and a Python that only says what it was asked for."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "python").write_text(FAKE_PYTHON)
    (folder / "python").chmod(0o755)
    return folder


def make(folder, *arguments, fail_at="never"):
    environment = {**os.environ, "FAIL_AT": fail_at}
    command = ["make", "--directory", str(folder), f"PYTHON={folder}/python", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_make_setup_that_was_completed_here_is_not_repeated(checkout):
    first = make(checkout, "setup")
    assert first.returncode == 0, first.stderr
    assert "pip install" in first.stdout
    assert "pip install" not in make(checkout, "setup").stdout


def test_make_setup_that_was_interrupted_starts_from_scratch(checkout):
    assert make(checkout, "setup", fail_at="--editable").returncode == 2
    again = make(checkout, "setup")
    assert again.returncode == 0
    assert "python: -m venv --clear .venv" in again.stdout
    assert "--editable" in again.stdout


def test_make_setup_after_the_checkout_moved_says_so_and_starts_from_scratch(checkout):
    make(checkout, "setup")
    moved = checkout.rename(checkout.with_name("moved"))
    done = make(moved, "setup")
    assert f"setting up .venv anew (it was made in {checkout})" in done.stdout
    assert "python: -m venv --clear .venv" in done.stdout
    assert "pip install" not in make(moved, "setup").stdout


def test_make_setup_after_a_change_of_versions_keeps_what_is_installed(checkout):
    make(checkout, "setup")
    os.utime(checkout / "constraints.txt", (4e9, 4e9))
    done = make(checkout, "setup")
    assert "python: -m venv .venv" in done.stdout
    assert "pip install" in done.stdout


@pytest.mark.parametrize("target", ["ui", "mlflow-ui"])
def test_make_ui_with_a_taken_port_names_the_process_and_another_port(tmp_path, target):
    for name in ("dagster", "mlflow"):
        (tmp_path / name).write_text('#!/bin/sh\necho "told: $*"\n')
        (tmp_path / name).chmod(0o755)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        paths = f"PATH={tmp_path}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        arguments = (target, f"PORT={port}", "READY=", paths)
        free = make(ROOT, *arguments)
        assert free.returncode == 0, free.stderr
        assert f"{port}" in next(line for line in free.stdout.splitlines() if line.startswith("told:"))
        server.listen()
        taken = make(ROOT, *arguments)
    assert taken.returncode == 2
    assert "told:" not in taken.stdout
    assert f"port {port} is taken by" in taken.stderr
    assert f"pid {os.getpid()}" in taken.stderr
    assert f"make {target} PORT={port + 1}" in taken.stderr
    assert "Traceback" not in taken.stderr
