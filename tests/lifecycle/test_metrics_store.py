"""The metrics of dataset versions: appended once a content, whole lines, also by two processes at once."""

import multiprocessing
from datetime import date

import pytest

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.storage.metrics import VersionMetrics, add_metrics, metrics_of, metrics_path
from trainworthy.lifecycle.storage.state import StateFolder


def metrics(content_hash, day_column="day"):
    return VersionMetrics(
        dataset="orders", version=content_hash, content_hash=content_hash, day_column=day_column,
        days=(date(2024, 1, 1), date(2024, 1, 3)), rows=(3, 2), columns=("price",), nulls={"price": (1, 0)},
        written_at="2024-01-04T00:00:00+00:00",
    )  # fmt: skip


@pytest.fixture
def state(tmp_path):
    return StateFolder(tmp_path / "var")


def test_metrics_are_kept_in_order_and_once_a_content(state):
    assert metrics_of(state, "shop") == ()
    for name in ("a", "b", "a"):
        add_metrics(state, "shop", metrics(name))
    assert metrics_of(state, "shop") == (metrics("a"), metrics("b"))
    assert metrics_of(state, "other") == ()


def test_metrics_of_the_same_content_by_another_column_or_dataset_are_kept_too(state):
    kept = (metrics("a"), metrics("a", day_column="sent"), metrics("a").model_copy(update={"dataset": "returns"}))
    for entry in (*kept, *kept):
        add_metrics(state, "shop", entry)
    assert metrics_of(state, "shop") == kept


def test_metrics_torn_last_line_counts_as_not_written_and_is_replaced(state):
    add_metrics(state, "shop", metrics("a"))
    path = metrics_path(state, "shop")
    path.write_bytes(path.read_bytes() + b'{"dataset": "ord')
    assert metrics_of(state, "shop") == (metrics("a"),)
    add_metrics(state, "shop", metrics("b"))
    assert metrics_of(state, "shop") == (metrics("a"), metrics("b"))


def test_metrics_line_that_is_no_entry_is_refused_by_number(state):
    add_metrics(state, "shop", metrics("a"))
    path = metrics_path(state, "shop")
    path.write_bytes(b'{"rows": 1}\n' + path.read_bytes())
    with pytest.raises(RecordError, match="line 1") as caught:
        metrics_of(state, "shop")
    assert caught.value.fix


def _add(root, names):
    for name in names:
        add_metrics(StateFolder(root), "shop", metrics(name))


def test_metrics_of_two_processes_at_once_are_whole(state):
    context = multiprocessing.get_context("spawn")
    names = [f"{number}" for number in range(20)]
    workers = [context.Process(target=_add, args=(state.root, names)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(entry.version for entry in metrics_of(state, "shop")) == sorted(names)
