"""deploy/compose.yaml without an engine: each service's own command and environment as processes of this machine."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, LiteralString
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
sys.path.insert(0, str(Path(__file__).parents[1] / "pipeline"))
from postgres_server import PASSWORD, USER, PostgresServer, free_port, postgres_server
from toy_project import Toy, new_toy, plant, product, until

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
WORKSPACE = yaml.safe_load((ROOT / "deploy" / "workspace.yaml").read_text())
ADMIN, WORD = "admin", "a long word of tests"
DATABASES = {"trainworthy": "t" * 24, "mlflow": "m" * 24, "mlflow_users": "m" * 24}


class Machine:
    """One folder in the volume's place, free ports in those of the containers, and PostgreSQL's in its name's."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.folder, self.server = folder, server
        self.mlflow, self.dagster, self.code = free_port(), free_port(), free_port()
        workspace = (ROOT / "deploy" / "workspace.yaml").read_text()
        for old, new in (("host: code", "host: 127.0.0.1"), ("port: 4000", f"port: {self.code}")):
            assert old in workspace
            workspace = workspace.replace(old, new)
        (folder / "workspace.yaml").write_text(workspace)
        self.secrets = {
            "POSTGRES_PASSWORD": PASSWORD, "TRAINWORTHY_DB_PASSWORD": DATABASES["trainworthy"],
            "MLFLOW_DB_PASSWORD": DATABASES["mlflow"], "MLFLOW_ADMIN_USERNAME": ADMIN, "MLFLOW_ADMIN_PASSWORD": WORD,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "f" * 32, "BACKUPS": str(folder / "backups"),
        }  # fmt: skip

    def here(self, text: str) -> str:
        """As compose fills it in, and with this machine's places."""
        text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: self.secrets[found[1]], text)
        text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: self.secrets.get(found[1], found[2]), text)
        for old, new in (
            ("$$", "$"), ("/srv/deploy/workspace.yaml", str(self.folder / "workspace.yaml")),
            ("@postgresql:5432", f"@127.0.0.1:{self.server.port}"), ("/srv/deploy", str(ROOT / "deploy")),
            ("http://mlflow:5000", f"http://127.0.0.1:{self.mlflow}"), ("/srv/backups", str(self.folder / "backups")),
            ("/srv/trainworthy", str(self.folder / "volume")), ("127.0.0.1:5000", f"127.0.0.1:{self.mlflow}"),
            ("127.0.0.1:3000", f"127.0.0.1:{self.dagster}"), ("0.0.0.0", "127.0.0.1"),
        ):  # fmt: skip
            text = text.replace(old, new)
        return {"3000": str(self.dagster), "4000": str(self.code)}.get(text, text)

    def environment(self, service: Mapping[str, Any]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "MLFLOW_", "TRAINWORTHY_", "PG"))}
        image = {"DAGSTER_DISABLE_TELEMETRY": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONUNBUFFERED": "1"}
        told = {name: self.here(value) for name, value in service["environment"].items()}
        told |= {"PGUSER": USER} if "PGUSER" in told else {}
        network = {"PGHOST": "127.0.0.1", "PGPORT": str(self.server.port), "HOME": str(self.folder / "home")}
        places = {
            "MLFLOW_HOST": "127.0.0.1", "MLFLOW_PORT": str(self.mlflow),
            "MLFLOW_SERVER_HOSTS": f"127.0.0.1:{self.mlflow}",
            "MLFLOW_ARTIFACTS": str(self.folder / "volume" / "mlflow"), "PYTHONPATH": str(product() / "src"),
            "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        # Programs are the image's there, and this environment's here.
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return kept | image | told | network | places | path

    def run(self, name: str, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A service that ends, or another command in its place."""
        service = COMPOSE["services"][name]
        given = command or tuple(map(self.here, service["command"]))
        return subprocess.run(
            given, env=self.environment(service) | more, cwd=self.folder / "volume", stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=200,
        )  # fmt: skip

    @contextlib.contextmanager
    def up(self, name: str) -> Iterator[None]:
        """A service that stays, once its own health check says that it is well."""
        service, log = COMPOSE["services"][name], self.folder / f"{name}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                list(map(self.here, service["command"])), env=self.environment(service), cwd=self.folder / "volume",
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        check = list(map(self.here, service["healthcheck"]["test"][1:]))

        def well() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(1)
            return (
                subprocess.run(check, env=self.environment(service), capture_output=True, check=False).returncode == 0
            )

        try:
            until(well, 200, f"until {name} is well: {log.read_text()[-2000:]}")
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def answer(address: str, **headers: str) -> int:
    try:
        with urlopen(Request(address, headers=headers), timeout=30) as found:
            return found.status
    except HTTPError as error:
        return error.code


@pytest.fixture
def toy(tmp_path) -> Toy:
    """The project on its volume."""
    pytest.importorskip("dagster_postgres", reason="dagster-postgres is not installed: make setup")
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed: apt-get install postgresql-client")
    (volume := tmp_path / "volume").mkdir()
    for name in ("home", "backups"):
        (tmp_path / name).mkdir()
    new_toy(tmp_path)
    project = (tmp_path / "project").rename(volume / "project")
    settings = yaml.safe_load((product() / "dagster.yaml").read_text())
    settings["storage"] = {"postgres": {"postgres_url": {"env": "DAGSTER_DATABASE"}}}
    (project / "dagster.yaml").write_text(yaml.safe_dump(settings))
    return Toy(project, volume / "var")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_services_run_and_end_runs_and_what_they_keep_is_in_the_backup(toy, tmp_path):
    """One start of all of them: they come up, queue, reload, terminate, stop; then all is lost but the backup."""
    volume = tmp_path / "volume"
    with postgres_server() as server:
        machine = Machine(tmp_path, server)
        refused = machine.run("init", TRAINWORTHY_DB_PASSWORD="a/b@c")
        assert refused.returncode == 1
        assert "Fix: openssl rand -hex 24" in refused.stdout
        # Twice: again changes nothing.
        for _ in range(2):
            done = machine.run("init")
            assert done.returncode == 0, done.stdout[-3000:]
        with machine.up("mlflow"):
            pages = f"http://127.0.0.1:{machine.mlflow}"
            assert answer(f"{pages}/api/2.0/mlflow/experiments/search?max_results=1") == 401
            # By the names that compose gives it, and by no other: a page in a browser could bring one of its own.
            assert answer(f"{pages}/health", Host="mlflow:5000") == 200
            assert answer(f"{pages}/api/2.0/mlflow/experiments/search?max_results=1", Host="evil.example.org") == 403
            with contextlib.ExitStack() as stack:
                code = stack.enter_context(contextlib.ExitStack())
                code.enter_context(machine.up("code"))
                for name in ("daemon", "webserver"):
                    stack.enter_context(machine.up(name))
                assert answer(f"http://127.0.0.1:{machine.dagster}/server_info") == 200
                launch(machine, "validate_toy")
                # The daemon takes it from the queue and runs it.
                until(lambda: "SUCCESS" in states(server), 200, f"until the run succeeds: {states(server)}")
                runs_end_by_the_page_and_with_the_container_of_their_code(machine, toy, code)
            done = machine.run("backup")
            assert done.returncode == 0, done.stdout[-3000:]
            (backup,) = (tmp_path / "backups").iterdir()
            held = {path.name for path in (backup / "databases").iterdir()}
            assert held == {"dagster-attempts.dump", "MLFLOW_DATABASE.dump", "MLFLOW_USERS_DATABASE.dump"}
            verified = machine.run("backup", "trainworthy", "restore", "--verify", str(backup))
            assert verified.returncode == 0, verified.stdout
            for secret in (*DATABASES.values(), WORD):
                assert secret not in done.stdout + (backup / "manifest.json").read_text()
        # Another day, with nothing left but the backup.
        server.execute(*(f"DROP DATABASE {name} WITH (FORCE)" for name in DATABASES))
        (volume / "var").rename(tmp_path / "lost")
        assert machine.run("init", "bash", str(ROOT / "deploy" / "init.sh"), "empty").returncode == 0
        again = str(volume / "mlflow2")
        done = machine.run("backup", "trainworthy", "restore", str(backup), "--mlflow-artifacts", again)
        assert done.returncode == 0, done.stdout[-3000:]
        assert states(server) == ["SUCCESS", "CANCELED", "CANCELED"]
        assert (volume / "var" / "records" / "toy").is_dir()
        assert Path(again).is_dir()


def runs_end_by_the_page_and_with_the_container_of_their_code(
    machine: Machine, toy: Toy, code: contextlib.ExitStack
) -> None:
    """One is terminated from the web server after a reload of its code, the next by the end of that container."""
    plant(toy, "smoke", "def loss_fn(outputs, targets):\n", "time.sleep(0.2)")
    toy.edit("use_case.yaml", "checkpoint_every_steps: 25", "checkpoint_every_steps: 2")
    server = machine.server
    # The code's server holds the definitions that it began with.
    (location,) = (one["grpc_server"]["location_name"] for one in WORKSPACE["load_from"])
    reload = f'reloadRepositoryLocation(repositoryLocationName: "{location}")'
    assert mutated(machine, reload) == "WorkspaceLocationEntry"
    launch(machine, "experiment_toy")
    until(lambda: trains(toy), 300, "until the first run trains")
    (run_id,) = rows(server, "SELECT run_id FROM runs WHERE status = 'STARTED'")
    # By TCP: a socket would be in the other container's /tmp.
    (reached,) = rows(server, "SELECT value FROM run_tags WHERE key = '.dagster/grpc_info' AND run_id = %s", run_id)
    assert json.loads(reached) == {"host": "127.0.0.1", "port": machine.code}
    # New code, while a run goes on with the old.
    assert mutated(machine, reload) == "WorkspaceLocationEntry"
    assert states(server) == ["SUCCESS", "STARTED"]
    assert mutated(machine, f'terminateRun(runId: "{run_id}")') == "TerminateRunSuccess"
    until(lambda: states(server) == ["SUCCESS", "CANCELED"], 60, "until the run is cancelled")
    until(lambda: not toy.workers(), 60, "until its worker is gone")
    assert toy.record(run_id, "smoke").cost.usd > 0
    launch(machine, "experiment_toy")
    until(lambda: trains(toy), 300, "until the second run trains")
    # As docker stop does where TINI_KILL_PROCESS_GROUP is set.
    code.close()
    assert toy.workers() == []
    assert states(server) == ["SUCCESS", "CANCELED", "CANCELED"]


def trains(toy: Toy) -> bool:
    """The smoke stage has a checkpoint, and its worker is there."""
    found = list(toy.var.glob("training/toy/*/smoke/checkpoints/*/manifest.json"))
    return bool(found) and any("/smoke" in argument for one in toy.workers() for argument in one.cmdline())


def launch(machine: Machine, job: str) -> None:
    workspace = str(machine.folder / "workspace.yaml")
    launched = machine.run("daemon", "dagster", "job", "launch", "-w", workspace, "-j", job)
    assert launched.returncode == 0, launched.stdout[-2000:]


def mutated(machine: Machine, mutation: str) -> str:
    """What the web server's page asks, and its answer's kind."""
    body = json.dumps({"query": f"mutation {{ asked: {mutation} {{ __typename }} }}"}).encode()
    asked = Request(f"http://127.0.0.1:{machine.dagster}/graphql", body, {"Content-Type": "application/json"})
    with urlopen(asked, timeout=60) as found:
        return json.load(found)["data"]["asked"]["__typename"]


def rows(server: PostgresServer, query: LiteralString, *values: str) -> list[str]:
    """One column of Dagster's database."""
    import psycopg

    with psycopg.connect(server.url("trainworthy")) as connection:
        return [row[0] for row in connection.execute(query, values).fetchall()]


def states(server: PostgresServer) -> list[str]:
    return rows(server, "SELECT status FROM runs ORDER BY id")
