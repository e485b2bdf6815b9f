"""One trained state a session (about 60 s on two busy cores); tests copy it, so that none depends on another."""

from dataclasses import dataclass

import pytest
from toy_project import FIRST, Done, Toy, new_toy


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


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Trained:
    """Read only: what a first training leaves. Its imports are on stderr, of Dagster's process only."""
    toy = new_toy(tmp_path_factory.mktemp("trained"))
    done = toy.execute(intent=FIRST, python=["-X", "importtime"])
    assert done.code == 0, done.out[-4000:]
    return Trained(toy, done)


@pytest.fixture
def toy(trained, tmp_path) -> Toy:
    """A copy of the trained project and state."""
    return trained.toy.copied(tmp_path)


@pytest.fixture
def fresh(tmp_path) -> Toy:
    """A project that was never run."""
    return new_toy(tmp_path)
