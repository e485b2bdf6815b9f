"""The ports of the two UIs: free, or taken by whom; and the commands that start them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.resources.mlflow_folder import VIEW, experiments
from trainworthy.resources.settings import DAGSTER_URL, MLFLOW_URL, PRODUCT, Settings, project_folder, read_settings


class Ui(NamedTuple):
    """A UI's command, its usual port, and the programs or Python modules that serve it."""

    command: str
    port: int
    programs: tuple[str, ...]


UIS = {
    "ui": Ui("ui", 3000, ("dagster", "dagster-webserver", "dagster_webserver")),
    "mlflow-ui": Ui("mlflow-ui", 5000, ("mlflow",)),
}
# Python's options that take the next argument.
_WITH_VALUE = ("-X", "-W")


def is_free(name: str, port: int) -> bool:
    """True if the UI can be started at the port, after telling where it will be; else tells who has it on stderr."""
    ui = UIS[name]
    check = port_check(ui, port)
    if check.status != "pass":
        print(f"{check.evidence}\n  fix: {check.fix}", file=sys.stderr)
        return False
    if port != ui.port:
        named = MLFLOW_URL if name == "mlflow-ui" else DAGSTER_URL
        print(f"links lead to port {ui.port}, unless a run is given {named}=http://127.0.0.1:{port}")
    if name == "mlflow-ui":
        print("\n".join(runs_at(read_settings().var / "mlflow", f"http://127.0.0.1:{port}")))
    return True


def start_command(name: str, port: int | None = None) -> str:
    """What a person types to start the UI: the checkout's make target, in a team's project the command itself."""
    if project_folder() == PRODUCT:
        return f"make {name}" + (f" PORT={port}" if port else "")
    return f"trainworthy {name}" + (f" --port {port}" if port else "")


def runs_at(folder: Path, address: str) -> list[str]:
    """Where the runs of each use case are shown, with the columns that people compare."""
    pages = [
        f"runs of {name}: {address}/#/experiments/{number}/runs?workflowType=machine_learning"
        f"{f'&viewStateShareKey={VIEW}' if shared else ''}"
        for name, (number, shared) in experiments(folder).items()
    ]
    return pages or [f"there are no runs yet; {address} shows them once there are"]


def ports(settings: Settings) -> Iterator[CheckResult]:
    """The usual ports of both UIs."""
    for ui in UIS.values():
        yield port_check(ui, ui.port)


def port_check(ui: Ui, port: int) -> CheckResult:
    """Whether the UI can be started at the port; if not, who has it."""
    name = f"port_{ui.command.replace('-', '_')}"
    if not taken(port):
        return CheckResult(name=name, status="pass", evidence=f"port {port} is free for {start_command(ui.command)}")
    owner = listener(port)
    # MLflow's server listens in children whose own command line says nothing; the topmost is the one to stop.
    family = [owner, *owner.parents()] if owner else []
    known = [process for process in family if program_of(command_of(process)) in ui.programs]
    owner = known[-1] if known else owner
    who = f"{' '.join(command_of(owner)[:4])} (pid {owner.pid})" if owner else "another program"
    fix = start_command(ui.command, port + 1)
    if known:
        fix = f"it looks like this UI: open http://127.0.0.1:{port}, or stop it (kill {known[-1].pid}), or {fix}"
    return CheckResult(name=name, status="fail", severity="warning", evidence=f"port {port} is taken by {who}", fix=fix)


def taken(port: int) -> bool:
    """True if something listens on the port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listener(port: int) -> psutil.Process | None:
    """The process that listens on the port, None if the system does not tell (another user's)."""
    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                return psutil.Process(connection.pid)
    except psutil.Error:
        pass
    return None


def program_of(command: Sequence[str]) -> str:
    """Name of the program; for Python's that of the script, or the package of the module, that it runs."""
    names = iter(command)
    program = Path(next(names, "")).name
    if not program.startswith("python"):
        return program
    for part in names:
        if part in _WITH_VALUE:
            next(names, "")
        elif part in ("-m", "-c"):
            return next(names, "").partition(".")[0] if part == "-m" else program
        elif not part.startswith("-"):
            return Path(part).name
    return program


def command_of(process: psutil.Process) -> list[str]:
    """The process's command line; [] if the system does not tell."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
