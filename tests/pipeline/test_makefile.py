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
    folder = tmp_path / "my checkout"
    folder.mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "install.py"):
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
    assert "install.py" in first.stdout
    assert "install.py" not in make(checkout, "setup").stdout


@pytest.mark.parametrize("step", ["-m venv", "--editable"])
def test_make_setup_that_was_interrupted_starts_from_scratch(checkout, step):
    assert make(checkout, "setup", fail_at=step).returncode == 2
    (checkout / ".venv" / "half").touch()
    again = make(checkout, "setup")
    assert again.returncode == 0, again.stderr
    assert not (checkout / ".venv" / "half").exists()
    assert "--editable" in again.stdout
    assert "install.py" not in make(checkout, "setup").stdout


def test_make_setup_after_the_checkout_moved_says_so_and_starts_from_scratch(checkout):
    make(checkout, "setup")
    (checkout / ".venv" / "old").touch()
    moved = checkout.rename(checkout.with_name("moved"))
    done = make(moved, "setup")
    assert f"setting up .venv anew (it was made in {checkout})" in done.stdout
    assert not (moved / ".venv" / "old").exists()
    assert "install.py" not in make(moved, "setup").stdout


def test_make_setup_after_a_change_of_versions_keeps_what_is_installed(checkout):
    make(checkout, "setup")
    (checkout / ".venv" / "installed").touch()
    os.utime(checkout / "constraints.txt", (4e9, 4e9))
    # Also where the first try is interrupted.
    assert make(checkout, "setup", fail_at="--editable").returncode == 2
    assert "install.py" in make(checkout, "setup").stdout
    assert (checkout / ".venv" / "installed").exists()


def test_make_setup_with_an_empty_mark_of_an_older_makefile_keeps_what_is_installed(checkout):
    make(checkout, "setup")
    (checkout / ".venv" / ".ready").write_text("")
    (checkout / ".venv" / "installed").touch()
    assert "install.py" in make(checkout, "setup").stdout
    assert (checkout / ".venv" / "installed").exists()


def test_make_setup_over_an_environment_of_somebody_else_refuses_and_leaves_it(checkout):
    (checkout / ".venv" / "bin").mkdir(parents=True)
    done = make(checkout, "setup")
    assert (done.returncode, "python: -m" in done.stdout) == (2, False)
    assert ".venv was not made by this Makefile" in done.stdout
    assert "make READY= TARGET" in done.stdout
    assert os.listdir(checkout / ".venv") == ["bin"]
    assert make(checkout, "setup", "READY=").returncode == 0


def test_make_setup_over_a_link_refuses_and_leaves_its_target(checkout, tmp_path):
    make(checkout, "setup")
    (checkout / ".venv").rename(tmp_path / "shared")
    (tmp_path / "shared" / ".ready").write_text("/elsewhere\n")
    (checkout / ".venv").symlink_to(tmp_path / "shared")
    done = make(checkout, "setup")
    assert (done.returncode, ".venv is a link" in done.stdout) == (2, True)
    assert (tmp_path / "shared" / "bin").is_dir()


@pytest.mark.parametrize(("arguments", "known"), [(("CPU=avx2",), "avx2 AVX2"), ((), "none none")])
def test_make_test_with_cpu_avx2_keeps_torch_and_onednn_to_it(tmp_path, monkeypatch, arguments, known):
    # Not from the environment: some systems set CPU.
    monkeypatch.setenv("CPU", "x86_64")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    (tmp_path / "pytest").write_text('#!/bin/sh\necho "${ATEN_CPU_CAPABILITY-none} ${ONEDNN_MAX_CPU_ISA-none}"\n')
    (tmp_path / "pytest").chmod(0o755)
    done = make(ROOT, "test", "READY=", f"PATH={tmp_path}:{os.environ['PATH']}", *arguments)
    assert done.returncode == 0, done.stderr
    assert known in done.stdout.splitlines()


def test_make_test_with_an_unknown_cpu_says_which_is_known():
    done = make(ROOT, "test", "READY=", "CPU=avx512")
    assert done.returncode == 2
    assert "CPU=avx512 is not known. Fix: CPU=avx2" in done.stderr


@pytest.mark.parametrize("target", ["ui", "mlflow-ui"])
def test_make_ui_with_a_taken_port_names_the_process_and_another_port(tmp_path, target):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        paths = f"PATH={os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        taken = make(ROOT, target, f"PORT={port}", "READY=", paths, f"TRAINWORTHY_VAR={tmp_path}/my state")
    assert taken.returncode == 2
    assert f"port {port} is taken by" in taken.stderr
    assert f"pid {os.getpid()}" in taken.stderr
    assert f"make {target} PORT={port + 1}" in taken.stderr
    assert "Traceback" not in taken.stderr
