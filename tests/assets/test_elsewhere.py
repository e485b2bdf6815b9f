"""A worker on another machine: what this one has says nothing about it, and is not told as if it did."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from trainworthy.assets import preflight, training
from trainworthy.assets.declare import gpu_pool
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.gates.declared import SHARED_VOLUME
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case

TOY = load_use_case(Path(__file__).parents[1] / "toy" / "use_cases" / "toy")
GIB = 2**30


def use_case(**compute):
    spec = TOY.spec.model_copy(update={"compute": ComputeSpec.model_validate({"sku": "small", **compute})})
    return TOY.model_copy(update={"spec": spec})


@pytest.fixture
def project(tmp_path, monkeypatch):
    """One whose cluster has a pod of more memory than this machine."""
    (tmp_path / "use_cases").mkdir()
    (tmp_path / "prices.yaml").write_text("dated: 2026-11-01\nskus:\n  small: {usd_per_hour: 1}\n")
    (tmp_path / "kubernetes.yaml").write_text(
        "{namespace: ml, image: worker, user: 1, group: 1, volume: {claim: project, mount: /srv},\n"
        " skus: {small: {cpu: 1, memory_gb: 900000}}}\n"
    )
    monkeypatch.setenv("TRAINWORTHY_PROJECT", str(tmp_path))
    return tmp_path


def run_of(folder, sku: Sku, durable=None, **compute):
    workspace = SimpleNamespace(state=StateFolder(folder), shared=FolderState(folder), durable=durable)
    split = SimpleNamespace(rows=10, positives=1)
    return SimpleNamespace(
        use_case=use_case(**compute), sku=sku, workspace=workspace, tracking=SimpleNamespace(reach=None),
        record=lambda step, kind: SimpleNamespace(splits={"training": split}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("declared_gb", "launcher", "limit"),
    [
        (None, "kubernetes", 900_000 * GIB),
        (16, "kubernetes", 16 * GIB),
        # More than the pod has, and more than this machine has.
        (1_000_000, "kubernetes", 900_000 * GIB),
        (1_000_000, "local", None),
    ],
)
def test_memory_is_held_against_the_workers_machine(project, declared_gb, launcher, limit):
    run = run_of(project, Sku(usd_per_hour=1, memory_gb=declared_gb), launcher=launcher)
    found = preflight.memory_limit_bytes(run)  # pyright: ignore[reportArgumentType]
    assert found == limit if limit is not None else 0 < found < 900_000 * GIB


@pytest.mark.parametrize(("launcher", "shared"), [("kubernetes", True), ("local", False)])
def test_checkpoints_of_a_pod_lie_on_the_volume_that_it_shares(project, launcher, shared):
    host = preflight.host_of(run_of(project, Sku(usd_per_hour=1), launcher=launcher))  # pyright: ignore[reportArgumentType]
    assert (host.disk == SHARED_VOLUME) == shared


@pytest.mark.parametrize(("launcher", "asked"), [("kubernetes", False), ("local", True)])
def test_bucket_is_opened_by_who_works_with_it(project, launcher, asked):
    """A pod may have a role that this machine has not, and the other way round."""
    run = run_of(project, Sku(usd_per_hour=1), durable="s3://models/team", launcher=launcher)
    host = preflight.host_of(run)  # pyright: ignore[reportArgumentType]
    assert ("copies of checkpoints in s3://models/team" in host.stores) == asked


@pytest.mark.parametrize(("launcher", "pool"), [("kubernetes", None), ("local", "gpu")])
def test_slot_of_the_pool_is_a_gpu_of_this_machine(launcher, pool):
    assert gpu_pool(use_case(launcher=launcher, gpus=1)) == pool


@pytest.mark.parametrize(("launcher", "sent"), [("kubernetes", 0), ("local", 1)])
def test_figures_of_this_machine_are_sent_where_the_worker_is_on_it(tmp_path, monkeypatch, launcher, sent):
    followed = []
    monkeypatch.setattr(
        training, "machine_followed", lambda send: followed.append(send) or training.contextlib.nullcontext()
    )
    monkeypatch.setattr(training, "mirrored", lambda *given: training.contextlib.nullcontext())
    run = SimpleNamespace(
        use_case=use_case(launcher=launcher), context=SimpleNamespace(log=SimpleNamespace(warning=print))
    )
    with training._mirrored(run, tmp_path):  # pyright: ignore[reportArgumentType]
        pass
    assert len(followed) == sent
