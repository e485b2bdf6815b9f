"""trainworthy doctor on the machine: Python, packages, variables, the disk, and ports that are taken."""

import os
import socket
import subprocess
import sys

import psutil
import pytest
from doctor_checks import bad, only
from toy_project import ROOT

from trainworthy.pipeline.doctor import examine, machine, ports
from trainworthy.resources.settings import read_settings


def test_doctor_python_outside_the_range_fails(place, monkeypatch):
    assert bad(machine.python) == []
    monkeypatch.setattr(machine, "PYTHONS", ((3, 8), (3, 9)))
    only(machine.python, "✗ python", sys.executable, "make setup PYTHON=")


def test_doctor_package_that_is_missing_or_of_another_version_is_named(place, monkeypatch):
    assert [line for line in bad(machine.packages) if line.startswith("✗")] == []
    real = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: {"dvc": "1.0", "jinja2": None}.get(name, real(name)))
    missing, other = [line for line in bad(machine.packages) if not line.startswith("! torch")]
    assert "✗ packages: wrong or missing: dvc<4,>=3.67 (found 1.0), jinja2>=3.1 (found none)" in missing
    assert "! exact versions: dvc 1.0 (not 3." in other


def test_doctor_torch_that_cannot_use_the_gpu_is_a_warning(place, monkeypatch):
    monkeypatch.setattr(machine, "installed", lambda name: "2.13.0+cpu")
    monkeypatch.setattr(machine, "GPU", place / "none")
    assert bad(lambda settings: machine._torch()) == []
    (place / "gpu").touch()
    monkeypatch.setattr(machine, "GPU", place / "gpu")
    only(lambda settings: machine._torch(), "! torch", "will not be used", "CUDA build")


def test_doctor_variables_without_effect_or_to_nowhere_are_warnings(place, monkeypatch):
    assert bad(machine.environment) == []
    monkeypatch.setenv("TRAINWORTHY_VARR", "x")
    only(machine.environment, "TRAINWORTHY_VARR is set and has no effect", "did you mean 'TRAINWORTHY_VAR'?")
    monkeypatch.delenv("TRAINWORTHY_VARR")
    monkeypatch.setenv("DAGSTER_HOME", str(place))
    only(machine.environment, "without dagster.yaml", str(place), "unset DAGSTER_HOME")
    (place / "dagster.yaml").touch()
    only(machine.environment, f"Dagster follows {place}/dagster.yaml")
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.chdir(place)
    only(machine.environment, str(place), f"cd {ROOT}")


def test_doctor_says_where_alerts_go_and_never_the_address(place, monkeypatch):
    monkeypatch.delenv("TRAINWORTHY_WEBHOOK", raising=False)
    (found,) = examine.examined(machine.alerts, read_settings())
    assert (found.status, found.evidence) == ("pass", "go to the run's log; TRAINWORTHY_WEBHOOK names no webhook")
    monkeypatch.setenv("TRAINWORTHY_WEBHOOK", "https://example.org/s3cret")
    (found,) = examine.examined(machine.alerts, read_settings())
    assert (found.status, found.evidence) == ("pass", "go to the run's log and a webhook")
    assert bad(machine.environment) == []
    monkeypatch.setenv("TRAINWORTHY_WEBHOOK", "http://example.org/s3cret")
    only(machine.alerts, "! alerts", "unencrypted")
    assert "s3cret" not in "".join(bad(machine.alerts))


def test_doctor_disk_that_is_nearly_full_warns_then_fails(place, monkeypatch):
    monkeypatch.setattr(machine, "COMFORTABLE_FREE_GB", 0.0)
    monkeypatch.setattr(machine, "LEAST_FREE_BYTES", 0)
    assert bad(machine.disk) == []
    monkeypatch.setattr(machine, "COMFORTABLE_FREE_GB", 1e9)
    only(machine.disk, "! disk", "GB free", "TRAINWORTHY_VAR")
    monkeypatch.setattr(machine, "LEAST_FREE_BYTES", 1e18)
    only(machine.disk, "✗ disk")


def test_doctor_folder_bytes_counts_every_file(place):
    for name, size in (("a", 10), ("deep/er/b", 32)):
        path = place / "sizes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    assert machine.folder_bytes(place / "sizes") == 42


def test_doctor_port_that_is_taken_names_the_process_and_another_port(place, capsys):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert ports.is_free("ui", port)
        assert f"http://127.0.0.1:{port}" in capsys.readouterr().out
        server.listen()
        assert not ports.is_free("ui", port)
        told = capsys.readouterr().err
        assert f"port {port} is taken by" in told
        assert f"pid {os.getpid()}" in told
        assert f"make ui PORT={port + 1}" in told
        own = ports.program_of(ports.command_of(psutil.Process()))
        same = ports.port_check(ports.Ui("ui", port, (own,)), port)
        assert f"it looks like this UI: open http://127.0.0.1:{port}" in same.fix
        assert same.severity == "warning"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/x/bin/python3 /x/bin/dagster dev", "dagster"),
        ("/x/bin/python3.11 -X importtime -W ignore -m dagster_webserver.cli -p 3000", "dagster_webserver"),
        ("/x/bin/python -B /x/bin/mlflow ui", "mlflow"),
        ("/usr/bin/make ui", "make"),
        ("python3 -m http.server --directory /home/me/dagster-notes", "http"),
        ("python3 -u /home/me/dagster/notes.py dagster", "notes.py"),
        ("python3 -c pass dagster", "python3"),
        ("", ""),
    ],
)
def test_doctor_program_of_a_command_line_is_no_argument_of_it(command, program):
    assert ports.program_of(command.split()) == program


def test_doctor_port_of_a_program_below_one_that_only_mentions_the_ui_is_not_the_ui(place):
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); s.accept(); input()"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {server!r}])"
    command = [sys.executable, "-c", parent, "/home/me/dagster-notes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        found = ports.port_check(ports.UIS["ui"], port)
        process.stdin.close()
    assert "-c" in found.evidence
    assert found.fix == f"make ui PORT={port + 1}"
