"""Metrics of earlier versions: what one machine has judged is known to the others, in one order."""

from datetime import date

from test_state_store import opened, place, server  # noqa: F401

from trainworthy.lifecycle.storage.durable.bucket import ObjectChangedError
from trainworthy.lifecycle.storage.metrics import VersionMetrics, add_metrics, metrics_of, metrics_path, share_metrics
from trainworthy.lifecycle.storage.state import StateFolder


def metrics(content_hash: str) -> VersionMetrics:
    return VersionMetrics(
        dataset="orders", version=content_hash, content_hash=content_hash, day_column="day", days=(date(2024, 1, 1),),
        rows=(3,), columns=("price",), nulls={},
    )  # fmt: skip


def versions(state: StateFolder) -> list[str]:
    return [entry.version for entry in metrics_of(state, "shop")]


def test_each_machine_gets_the_metrics_of_all_in_the_order_of_the_store(place, tmp_path):  # noqa: F811
    first, second = StateFolder(tmp_path / "first"), StateFolder(tmp_path / "second")
    share_metrics(opened(place), first, "shop")
    assert opened(place).get("metrics/shop.jsonl") is None
    for state, names in ((first, "ab"), (second, "cb")):
        for name in names:
            add_metrics(state, "shop", metrics(name))
        share_metrics(opened(place), state, "shop")
    assert versions(second) == ["a", "b", "c"]
    assert versions(first) == ["a", "b"]
    share_metrics(opened(place), first, "shop")
    assert versions(first) == ["a", "b", "c"]
    stored = opened(place).get("metrics/shop.jsonl")
    assert stored is not None
    assert stored.content == metrics_path(first, "shop").read_bytes() == metrics_path(second, "shop").read_bytes()
    # What follows is appended to what lies there.
    add_metrics(first, "shop", metrics("d"))
    assert versions(first) == ["a", "b", "c", "d"]


def test_metrics_that_another_machine_adds_between_are_not_lost(place, tmp_path, monkeypatch):  # noqa: F811
    store, other, state = opened(place), opened(place), StateFolder(tmp_path / "first")
    add_metrics(state, "shop", metrics("b"))
    put_new, tried = type(store).put_new, []

    def late(self, key: str, content: bytes) -> None:
        if self is store and not tried:
            tried.append(key)
            late_machine = StateFolder(tmp_path / "second")
            add_metrics(late_machine, "shop", metrics("a"))
            share_metrics(other, late_machine, "shop")
            raise ObjectChangedError(key)
        put_new(self, key, content)

    monkeypatch.setattr(type(store), "put_new", late)
    share_metrics(store, state, "shop")
    assert tried == ["metrics/shop.jsonl"]
    assert versions(state) == ["a", "b"]
