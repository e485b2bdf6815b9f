"""deploy/compose.yaml: what it starts, for whom, and that every secret comes from outside."""

import re
import shutil
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from dockerfile import instructions

from trainworthy.resources.launcher import Launcher

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
# Those that stay; the others are asked for by name.
STAYING = {name: one for name, one in SERVICES.items() if "profiles" not in one}


def asked() -> dict[str, str]:
    """Variables of .env.example with what stands behind each."""
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_images_are_pinned_and_ours_is_built_from_the_dockerfile():
    for name, one in SERVICES.items():
        if "build" in one:
            folder = (DEPLOY / one["build"]["context"]).resolve()
            assert (folder / one["build"]["dockerfile"]).is_file()
            assert re.fullmatch(r"trainworthy:\d+\.\d+\.\d+", one["image"])
        else:
            assert re.fullmatch(r"postgres:15\.\d+-bookworm@sha256:[0-9a-f]{64}", one["image"]), name


def test_ports_are_this_machines_alone():
    ports = [port for one in SERVICES.values() for port in one.get("ports", [])]
    assert sorted(ports) == ["127.0.0.1:3000:3000", "127.0.0.1:5000:5000"]
    assert not any("network_mode" in one for one in SERVICES.values())


def test_every_secret_comes_from_outside_and_has_no_default():
    used = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    assert used == set(asked())
    assert set(asked().values()) == {""}
    needed = set(re.findall(r"\$\{([A-Z_]+):\?", TEXT))
    # The others are addresses.
    assert used - needed == {"TRAINWORTHY_DAGSTER_URL", "TRAINWORTHY_MLFLOW_URL", "MLFLOW_SERVER_HOSTS"}
    assert not any(f"${{{name}:-" in TEXT or f"${{{name}}}" in TEXT for name in needed)
    for one in SERVICES.values():
        for name, value in one.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|DATABASE", name):
                assert "${" in value, name
    assert "deploy/.env" in (ROOT / ".gitignore").read_text()


def test_services_stay_and_say_whether_they_are_well():
    assert set(STAYING) == {"postgresql", "mlflow", "code", "webserver", "daemon"}
    for name, one in STAYING.items():
        assert one["restart"] == "unless-stopped", name
        assert one["healthcheck"]["test"][0] == "CMD", name
    for one in SERVICES.values():
        for other, condition in one.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert "healthcheck" in SERVICES[other]


def test_runs_are_in_one_container_that_the_others_reach_by_tcp():
    """Else Terminate in the web server's container looks for a socket that is in the daemon's."""
    (location,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    reached, command = location["grpc_server"], SERVICES["code"]["command"]
    told = dict(zip(command[3::2], command[4::2], strict=True))
    assert command[:3] == ["dagster", "code-server", "start"]
    assert (reached["host"], told["--port"]) == ("code", str(reached["port"]))
    assert told["--host"] == "0.0.0.0"
    assert "ports" not in SERVICES["code"]
    (own,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert own["python_module"]["module_name"] == told["--module-name"]
    assert own["python_module"]["location_name"] == told["--location-name"] == reached["location_name"]
    for name in ("webserver", "daemon"):
        one = SERVICES[name]
        workspace = one["command"][one["command"].index("--workspace") + 1]
        assert f"./workspace.yaml:{workspace}:ro" in one["volumes"]


def test_runs_have_time_for_their_checkpoint_when_their_container_is_stopped():
    code = SERVICES["code"]
    assert code["environment"]["TINI_KILL_PROCESS_GROUP"] == "1"
    assert code["init"] is True
    (minutes,) = re.findall(r"^(\d+)m$", code["stop_grace_period"])
    # A worker's own time, and as much again for the run's end.
    assert int(minutes) * 60 >= 2 * Launcher.model_fields["grace_seconds"].default


def test_ours_have_no_right_to_get_more():
    for name, one in SERVICES.items():
        if "build" in one:
            assert one["cap_drop"] == ["ALL"], name
            assert one["security_opt"] == ["no-new-privileges:true"], name
            assert one["init"] is True
            assert "user" not in one


def test_volumes_are_declared_and_files_are_there():
    for one in SERVICES.values():
        for volume in one["volumes"]:
            source = volume.rsplit("}", 1)[-1].split(":")[0] if volume.startswith("$") else volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).is_file()
            elif source:
                assert source in COMPOSE["volumes"]
    (folder,) = {
        step.value for step in instructions(DEPLOY / "Dockerfile") if step.name == "WORKDIR" and step.stage == 1
    }
    ours = [one for one in SERVICES.values() if "build" in one]
    assert all(f"project:{folder}" in one["volumes"] for one in ours)
    # A state folder below the volume: a restore renames one into its place, which no mount allows.
    for key in ("TRAINWORTHY_VAR", "TRAINWORTHY_PROJECT"):
        assert SERVICES["daemon"]["environment"][key].startswith(f"{folder}/")


def test_programs_are_in_the_image():
    for name, one in SERVICES.items():
        if "build" in one:
            assert shutil.which(one["command"][0]), name
            assert shutil.which(one.get("healthcheck", {"test": ["CMD", "bash"]})["test"][1])


def test_backup_has_all_that_it_asks_for():
    one = SERVICES["backup"]
    told = one["command"][-1]
    for variable in re.findall(r"--mlflow-database (\w+)", told):
        assert variable in one["environment"]
    (artifacts,) = re.findall(r"--mlflow-artifacts (\S+)", told)
    assert f":-{artifacts}}}" in (DEPLOY / "mlflow.sh").read_text()
    assert one["environment"].items() >= SERVICES["daemon"]["environment"].items()
