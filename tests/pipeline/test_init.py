"""trainworthy init: the files of a team's own repository."""

import os
import runpy
import subprocess
from pathlib import Path

import pytest
import yaml

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.pipeline import cli
from trainworthy.pipeline.scaffold import repository
from trainworthy.pipeline.scaffold.repository import FILES, make_repository
from trainworthy.resources.settings import read_settings


@pytest.fixture
def team(tmp_path) -> Path:
    """An empty git repository."""
    subprocess.run(["git", "init", "--quiet", tmp_path / "team"], check=True)
    return tmp_path.resolve() / "team"


def files(folder: Path) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in found if path.parts[0] != ".git"}


def test_init_writes_every_file_and_the_folder_is_a_project(team, monkeypatch, capsys):
    monkeypatch.chdir(team)
    for name in ("TRAINWORTHY_VAR", "TRAINWORTHY_USE_CASES", "TRAINWORTHY_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["init"]) == 0
    assert files(team) == set(FILES)
    assert "trainworthy new NAME" in capsys.readouterr().out
    settings = read_settings()
    assert (settings.project, settings.prices) == (team, team / "prices.yaml")
    (team / "var").mkdir()
    (team / "var" / "state").touch()
    ignored = subprocess.run(["git", "check-ignore", "-q", "var/state"], cwd=team, check=False)
    assert ignored.returncode == 0


def test_init_writes_definitions_that_load_the_project(team, monkeypatch, tmp_path):
    make_repository(team)
    assert len((team / "definitions.py").read_text().splitlines()) == 5
    monkeypatch.setenv("TRAINWORTHY_PROJECT", "")
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.delenv("TRAINWORTHY_USE_CASES", raising=False)
    made = runpy.run_path(str(team / "definitions.py"))
    assert set(made["defs"].resources) == {"workspace", "tracking", "launcher", "intent"}
    assert os.environ["TRAINWORTHY_PROJECT"] == str(team)


def test_init_keeps_what_is_there_and_names_it(team, capsys):
    (team / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (team / ".gitignore").write_text("/.venv/\n")
    assert cli.main(["init", str(team)]) == 0
    told = capsys.readouterr().out
    assert "kept     dagster.yaml, .gitignore" in told
    assert "add to .gitignore: /var/ __pycache__/" in told
    assert (team / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
    assert files(team) == set(FILES)


def test_init_that_breaks_leaves_the_folder_as_it_was(team, monkeypatch):
    (team / "README.md").touch()

    def full(path: Path, content: bytes) -> None:
        if path.name == "prices.yaml":
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(repository, "write_atomic", full)
    with pytest.raises(SettingsError, match="cannot be written: No space left"):
        make_repository(team)
    assert files(team) == {"README.md"}
    with pytest.raises(SettingsError, match="cannot be written"):
        make_repository(team / "services" / "ml")
    assert not (team / "services").exists()


@pytest.mark.parametrize(("folder", "told"), [("/proc", "cannot be written"), ("file", "cannot be written")])
def test_init_where_nothing_can_be_written_says_so(team, folder, told):
    (team / "file").touch()
    with pytest.raises(SettingsError, match=told):
        make_repository(team / folder)


def test_init_outside_of_git_says_so_and_writes_nothing(tmp_path, monkeypatch):
    # Whatever repository the temporary folder may lie in.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SettingsError, match="lies in no git repository") as refused:
        make_repository(tmp_path / "team")
    assert refused.value.fix.startswith("git init ")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SettingsError, match="git is not installed"):
        make_repository(tmp_path / "team")
    assert not (tmp_path / "team").exists()


@pytest.mark.parametrize("name", ["trainworthy.py", "trainworthy/__init__.py"])
def test_package_of_the_project_that_python_would_import_as_trainworthy_is_refused(team, monkeypatch, name):
    (team / name).parent.mkdir(exist_ok=True)
    (team / name).touch()
    with pytest.raises(SettingsError, match="a package called trainworthy"):
        make_repository(team)
    monkeypatch.setenv("TRAINWORTHY_PROJECT", str(team))
    with pytest.raises(SettingsError, match="a package called trainworthy"):
        read_settings()


@pytest.fixture
def workflow(team, monkeypatch) -> dict[str, str]:
    """The workflow's scripts by name, in a repository with a commit; trainworthy and dagster write down their words."""
    make_repository(team)
    for name in ("shop", "news", "old"):
        (team / "use_cases" / name).mkdir()
        (team / "use_cases" / name / "use_case.yaml").touch()
    (bin_folder := team.parent / "bin").mkdir()
    for name in ("trainworthy", "dagster"):
        script = f'#!/bin/sh\necho "{name} $*" >> {team.parent}/asked\ncase "$*" in *news) exit 1;; esac\n'
        (bin_folder / name).write_text(script)
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    commit(team)
    steps = yaml.safe_load((team / ".github/workflows/trainworthy.yaml").read_text())["jobs"]["use_cases"]["steps"]
    return {step["name"]: step["run"] for step in steps if "run" in step}


def commit(team: Path) -> None:
    subprocess.run(["git", "add", "--all"], cwd=team, check=True)
    named = ("-c", "user.name=team", "-c", "user.email=team@example.org")
    subprocess.run(["git", *named, "commit", "--quiet", "-m", "use cases"], cwd=team, check=True)


def ran(script: str, team: Path, **environment: str) -> tuple[int, list[str]]:
    """Exit code of a script as GitHub runs it, and what was asked of the programs."""
    (asked := team.parent / "asked").write_text("")
    done = subprocess.run(["bash", "-e", "-c", script], cwd=team, env=os.environ | environment, check=False)
    return done.returncode, asked.read_text().splitlines()


def test_workflow_checks_all_and_preflights_what_a_pull_request_changes(team, workflow):
    code, asked = ran(workflow["check"], team)
    assert (code, asked) == (1, ["trainworthy check news", "trainworthy check old", "trainworthy check shop"])
    (team / "use_cases" / "shop" / "model.py").touch()
    (team / "use_cases" / "old" / "use_case.yaml").unlink()
    commit(team)
    code, asked = ran(workflow["preflight"], team, BASE="HEAD~1")
    assert (code, asked) == (0, ["dagster job execute -m trainworthy.pipeline.definitions -j preflight_shop"])
    (team / "use_cases" / "news" / "model.py").touch()
    commit(team)
    assert ran(workflow["preflight"], team, BASE="HEAD~1")[0] == 1
    # A base that git does not have, as in a shallow clone, is no pull request without changes.
    assert ran(workflow["preflight"], team, BASE="0" * 40)[0] != 0


def test_workflow_of_a_project_below_the_repository_preflights_what_changes_and_init_says_where_it_belongs(
    team, workflow, capsys
):
    below = team / "ml"
    assert cli.main(["init", str(below)]) == 0
    assert "working-directory: ml" in capsys.readouterr().out
    (below / "use_cases" / "shop").mkdir()
    (below / "use_cases" / "shop" / "use_case.yaml").touch()
    commit(team)
    code, _ = ran(workflow["preflight"], below, BASE="HEAD~1")
    asked = (team.parent / "asked").read_text().splitlines()
    assert (code, asked) == (0, ["dagster job execute -m trainworthy.pipeline.definitions -j preflight_shop"])


def test_init_in_a_folder_of_another_owner_says_how_git_is_told_to_trust_it(team, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(SettingsError, match="does not trust") as refused:
        make_repository(team)
    assert "safe.directory" in refused.value.fix


def test_init_beside_a_gitignore_that_cannot_be_read_writes_nothing(team):
    (team / ".gitignore").symlink_to(team / "nowhere")
    before = sorted(os.listdir(team))
    with pytest.raises(SettingsError, match=r"\.gitignore cannot be read"):
        make_repository(team)
    assert sorted(os.listdir(team)) == before


def test_workflow_installs_nothing_unless_it_is_said_what(team, workflow):
    done = subprocess.run(
        ["bash", "-e", "-c", workflow["install"]], cwd=team, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "set the variable TRAINWORTHY" in done.stderr
