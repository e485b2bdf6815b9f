"""What `trainworthy ui` and `mlflow-ui` start, and how; the UIs themselves are tests/pipeline/test_browser.py's."""

import os
import signal
import socket
import sys

import pytest
from toy_project import ROOT

from trainworthy.pipeline.cli import main
from trainworthy.pipeline.doctor.ports import start_command


class StartedError(Exception):
    """Instead of a process."""


@pytest.fixture
def port():
    """One that nothing listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server.getsockname()[1]


@pytest.fixture
def team(tmp_path, monkeypatch):
    """A project of a team, with a folder below it in which the command starts."""
    for folder in ("my project/use_cases", "my project/notes"):
        (tmp_path / folder).mkdir(parents=True)
    named = ("TRAINWORTHY_PROJECT", "TRAINWORTHY_VAR", "TRAINWORTHY_USE_CASES", "TRAINWORTHY_DURABLE", "DAGSTER_HOME",
             "MLFLOW_TRACKING_URI")  # fmt: skip
    for name in named:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "my project" / "notes")
    return tmp_path / "my project"


@pytest.fixture
def started(monkeypatch):
    """The command line and environment of what is started."""
    calls = []

    def execve(path, command, environment):
        # As a script's shell would leave it, a UI that ignores SIGINT ends on nothing but KILL.
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        calls.append((command, environment))
        raise StartedError

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(os, "execve", execve)
    yield calls
    signal.signal(signal.SIGINT, before)


def test_ui_is_dagsters_on_loopback_with_the_projects_settings(team, port, started):
    (team / "workspace.yaml").touch()
    (team / "dagster.yaml").touch()
    with pytest.raises(StartedError):
        main(["ui", "--port", str(port)])
    ((command, environment),) = started
    expected = ["dagster", "dev", "-w", str(team / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)]
    assert command == [sys.executable, "-m", *expected]
    assert environment["DAGSTER_HOME"] == str(team)
    assert os.getcwd() == str(team)


def test_ui_hands_on_paths_that_lead_to_the_same_from_the_projects_folder(team, port, started, monkeypatch):
    for name in ("workspace.yaml", "dagster.yaml"):
        (team / name).touch()
    monkeypatch.setenv("TRAINWORTHY_PROJECT", "..")
    monkeypatch.setenv("TRAINWORTHY_VAR", "../../state")
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", "../use_cases")
    with pytest.raises(StartedError):
        main(["ui", "--port", str(port)])
    environment = started[0][1]
    assert environment["TRAINWORTHY_PROJECT"] == str(team)
    assert environment["TRAINWORTHY_VAR"] == str(team.parent / "state")
    assert environment["TRAINWORTHY_USE_CASES"] == str(team / "use_cases")


def test_ui_keeps_a_home_of_dagster_that_is_named(team, port, started, monkeypatch, tmp_path):
    (team / "workspace.yaml").touch()
    (tmp_path / "dagster.yaml").touch()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with pytest.raises(StartedError):
        main(["ui", "--port", str(port)])
    assert started[0][1]["DAGSTER_HOME"] == str(tmp_path)


def test_ui_of_a_project_without_a_workspace_says_what_writes_it(team, port, started, capsys):
    assert main(["ui", "--port", str(port)]) == 1
    assert started == []
    told = capsys.readouterr().err
    assert "trainworthy init" in told
    assert str(team / "dagster.yaml") in told


def test_mlflow_ui_is_on_loopback_and_on_the_projects_state(team, port, started):
    with pytest.raises(StartedError):
        main(["mlflow-ui", "--port", str(port)])
    ((command, environment),) = started
    assert command[1:7] == ["-m", "mlflow", "ui", "--host", "127.0.0.1", "--port"]
    # A folder with a space is one argument.
    assert command[-1] == f"sqlite:///{team}/var/mlflow/mlflow.db"
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert [path.name for path in (team / "var" / "mlflow").glob("*mlflow.db")] == ["mlflow.db"]


@pytest.mark.parametrize("name", ["ui", "mlflow-ui"])
def test_ui_at_a_taken_port_starts_nothing(team, started, capsys, name):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert main([name, "--port", str(port)]) == 1
    assert started == []
    assert f"trainworthy {name} --port {port + 1}" in capsys.readouterr().err


def test_start_command_is_make_in_the_checkout_alone(team, monkeypatch):
    assert start_command("ui") == "trainworthy ui"
    monkeypatch.chdir(ROOT)
    assert start_command("ui") == "make ui"
    assert start_command("mlflow-ui", 5001) == "make mlflow-ui PORT=5001"
