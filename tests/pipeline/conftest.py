"""One trained state for all processes of a session (63 CPU s); tests copy it, so that none depends on another."""

import contextlib
import fcntl
import json
import shutil
import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from toy_project import FIRST, ROOT, Done, Toy, git, new_toy
from verdict_logs import log_in, logged


@dataclass(frozen=True)
class Trained:
    """The project, its state after one `train_toy` that declared the first model, and what the command said."""

    toy: Toy
    done: Done


@pytest.fixture(autouse=True)
def _no_instance_of_another_test():
    """Of two instances that overlapped, Dagster leaves the first one's storage behind, and the next job asks it."""
    from dagster._core.storage.defs_state.base import set_defs_state_storage

    with set_defs_state_storage(None):
        yield


def once(folder: Path, make) -> Done:
    """What `make(folder)` gave whichever of this session's processes came first: the others wait and read it."""
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / "done.json"
        if not path.is_file():
            path.write_text(json.dumps(asdict(make(folder))))
        return Done(**json.loads(path.read_text()))


def first_training(folder: Path) -> Done:
    """What a first training leaves. Its imports are on stderr, of Dagster's process only."""
    done = new_toy(folder).execute(intent=FIRST, python=["-X", "importtime"])
    assert done.code == 0, done.out[-4000:]
    return done


@pytest.fixture(scope="session")
def trained(tmp_path_factory, worker_id) -> Trained:
    """Read only: what a first training leaves, made once for all xdist processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "trained"
    done = once(folder, first_training)
    return Trained(Toy(folder / "project", folder / "state"), done)


def second_training(trained: Toy, folder: Path) -> Done:
    """The trained project with another seed, trained and not judged."""
    toy = trained.copied(folder)
    toy.edit("use_case.yaml", "seed: 7", "seed: 8")
    done = toy.run("experiment_toy")
    assert done.code == 0, done.out[-4000:]
    return done


@pytest.fixture(scope="session")
def second_seed(trained, tmp_path_factory, worker_id) -> Toy:
    """Read only: the trained state, and beside it an experiment with seed 8, whose stages a candidate reuses."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "second_seed"
    once(folder, lambda made: second_training(trained.toy, made))
    return Toy(folder / "project", folder / "state")


@pytest.fixture
def toy(trained, tmp_path) -> Toy:
    """A copy of the trained project and state."""
    return trained.toy.copied(tmp_path)


@pytest.fixture
def fresh(tmp_path) -> Toy:
    """A project that was never run."""
    return new_toy(tmp_path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch):
    """A committed project of one use case and an empty state folder, in the environment."""
    shutil.copytree(ROOT / "tests" / "toy", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    git(tmp_path, "init", "--quiet", "project")
    for key, value in (("user.name", "Tests"), ("user.email", "tests@example.org")):
        git(tmp_path / "project", "config", key, value)
    git(tmp_path / "project", "add", "--all")
    git(tmp_path / "project", "commit", "--quiet", "--message", "start")
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(tmp_path / "project" / "use_cases"))
    for name in ("MLFLOW_TRACKING_URI", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(ROOT)
    return tmp_path


@pytest.fixture
def state(place) -> Path:
    """A small state folder of the project in the environment: a record and what leads to it, a file, a database."""
    from backups import DATABASE_OF_OURS, WORDS, told

    state = place / "state"
    promoted = told(state, "first")
    logged(
        log_in(state), action="shadow", model_version="1", verdict_sha256=promoted,
        previous_verdict_sha256=None,
    )  # fmt: skip
    (state / "contracts").mkdir()
    (state / "contracts" / "a.json").write_bytes(WORDS)
    (state / "empty").mkdir()
    (state / DATABASE_OF_OURS).parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(state / DATABASE_OF_OURS)) as connection, connection:
        connection.execute("CREATE TABLE told (number INTEGER)")
    return state


@pytest.fixture
def backup(state, place) -> Path:
    """A backup of it."""
    from backups import take_it

    take_it(place / "backup")
    return place / "backup"
