import itertools
from types import SimpleNamespace

import pytest
import toy_jobs


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """As in toy_jobs.start_worker: sums over several threads differ in the last bits, and workers are compared."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def splits(tmp_path_factory):
    """Folder with the toy's four split files."""
    return toy_jobs.build_splits(tmp_path_factory.mktemp("splits"))


@pytest.fixture
def ticks(monkeypatch):
    """Each part of a time forecast takes one second, so that its arithmetic is seen and no load."""
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("trainworthy.lifecycle.engine.preflight.throughput.seconds.time", clock)
