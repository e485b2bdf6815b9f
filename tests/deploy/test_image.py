"""deploy/Dockerfile: what can be known of an image without an engine to build it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parent))
from dockerfile import instructions

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"
STEPS = instructions(FILE)
LAST = max(step.stage for step in STEPS)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def of(name: str, *stages: int) -> list:
    return [step for step in STEPS if step.name == name and (not stages or step.stage in stages)]


def locked(path: Path) -> dict[str, str]:
    return dict(line.split("==") for line in path.read_text().split() if "==" in line and not line.startswith("#"))


def sources() -> list[str]:
    """What is copied from the repository, and not from another stage."""
    return [source for step in of("COPY") if not step.value.startswith("--from") for source in step.words[:-1]]


def test_base_is_one_by_digest_in_all_stages():
    assert [step.words[0] for step in of("FROM")] == ["${BASE}"] * 2
    (base,) = (step.value for step in of("ARG", -1))
    assert re.fullmatch(r"BASE=python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", base)


def test_image_runs_as_a_user_by_number_who_is_not_root():
    assert [step.value for step in of("USER")] == ["1001:1001"]
    (user,) = of("USER")
    assert user.stage == LAST
    # Nothing is installed or written behind it, which that user could not.
    assert {step.name for step in STEPS[STEPS.index(user) :]} == {"USER", "CMD"}
    made = " ".join(step.value for step in of("RUN", LAST))
    assert "--uid 1001 --gid 1001" in made


def test_last_stage_has_no_compiler_and_nothing_of_the_build_but_its_environment():
    (installs,) = (step.value for step in of("RUN", LAST) if "apt-get" in step.value)
    (_, packages) = installs.split("--no-install-recommends")
    assert packages.split("&&")[0].split() == ["git", "postgresql-client"]
    assert "rm -rf /var/lib/apt/lists" in packages
    assert [step.words for step in of("COPY", LAST)] == [["--from=build", "/opt/trainworthy", "/opt/trainworthy"]]


def test_packages_are_locked_wheels_and_torch_has_an_index_of_its_own():
    pips = [step.value for step in of("RUN") if "bin/pip install" in step.value]
    assert len(pips) == 2
    assert all("--only-binary :all:" in pip for pip in pips)
    assert '${TORCH_INDEX:+--index-url "${TORCH_INDEX}"}' in pips[0]
    assert "--constraint locked.txt" in pips[1]
    (index,) = (step.value for step in of("ARG", 0))
    assert index == 'TORCH_INDEX=""'


def test_own_versions_take_the_place_of_those_that_the_tests_run_with():
    own, tested = locked(ROOT / "deploy" / "constraints.txt"), locked(ROOT / "constraints.txt")
    (merge,) = (step.value for step in of("RUN", 0) if "locked.txt" in step.value and "grep --invert" in step.value)
    (taken_out,) = re.findall(r"'\^\(([^)]*)\)=='", merge)
    # pip refuses two versions of one package.
    assert set(taken_out.split("|")) >= own.keys() & tested.keys()
    assert set(taken_out.split("|")) <= own.keys()
    # Dagster's libraries are released together.
    assert own["dagster-k8s"] == tested["dagster-postgres"]
    (declared,) = map(Requirement, PROJECT["optional-dependencies"]["kubernetes"])
    assert declared.specifier.contains(own["kubernetes"])
    assert declared.specifier.contains(tested["kubernetes"])
    (extras,) = re.findall(r"trainworthy\[([a-z0-9,]+)\]", " ".join(step.value for step in of("RUN", 0)))
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_what_is_copied_is_in_the_repository_and_let_in_and_nothing_else_is():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == set(sources())
    for source in sources():
        tracked = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "--", source], capture_output=True, text=True, check=True
        )
        assert tracked.stdout, f"{source} is ignored by git, or not there"
    assert of("ADD") == []


def test_all_that_the_wheel_is_built_of_is_copied():
    links = {path.readlink().name for path in (ROOT / "src" / "trainworthy").iterdir() if path.is_symlink()}
    assert len(links) >= 7
    assert links | {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "src"} <= set(sources())


def test_no_secret_is_in_the_image():
    named = " ".join(step.value for step in (*of("ENV"), *of("ARG"), *of("LABEL")))
    assert not re.search(r"PASSWORD|SECRET|TOKEN|KEY", named)


def test_programs_of_the_build_exist():
    """In a shell's words: those behind RUN, && and |."""
    commands = [part.split()[0] for step in of("RUN") for part in re.split(r"&&|\|(?!kubernetes)", step.value)]
    own = [command for command in commands if not command.startswith("/opt/trainworthy/")]
    assert len(own) >= 8
    # What the base brings and no other system has to.
    assert [command for command in own if command != "apt-get" and not shutil.which(command)] == []
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (command,) = of("CMD")
    assert yaml.safe_load(command.value)[0] in scripts
