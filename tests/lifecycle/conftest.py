import itertools
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="module")
def pictures_drawn() -> Iterator[list[tuple[str, object, bytes]]]:
    """Each picture by what it is drawn of: drawing is nine tenths of a page, and most tests read the words."""
    from trainworthy.lifecycle.report import pictures

    drawn: list[tuple[str, object, bytes]] = []

    def once(draw: Callable[..., bytes]) -> Callable[..., bytes]:
        def picture(*of: object) -> bytes:
            for name, before, png in drawn:
                if (name, before) == (draw.__name__, of):
                    return png
            png = draw(*of)
            drawn.append((draw.__name__, of, png))
            return png

        return picture

    with pytest.MonkeyPatch.context() as patch:
        for name in ("learning_curve", "rate_curve", "reliability_curve", "slice_chart", "comparison_chart"):
            patch.setattr(pictures, name, once(getattr(pictures, name)))
        yield drawn
