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
