"""The next dataset version: trained on through `trainworthy next`, compared with the champion, and what comes after."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from toy_project import Done, Toy

from trainworthy.lifecycle.protocol.records import STEPS, DatasetVersion

pytestmark = pytest.mark.slow
NEXT = ("-m", "trainworthy.pipeline.cli", "next", "toy")
MATERIALIZE = (
    "-m",
    "dagster",
    "asset",
    "materialize",
    "-m",
    "trainworthy.pipeline.definitions",
    "--select",
    "toy/full",
)


@dataclass(frozen=True)
class Later:
    """The trained toy after v2 was judged, by rules so wide that they promote it."""

    toy: Toy
    done: Done


@pytest.fixture(scope="module")
def later(trained, tmp_path_factory) -> Later:
    toy = trained.toy.copied(tmp_path_factory.mktemp("later"))
    for old, new in (("purpose: improve", "purpose: refresh"), ("margin: 0.01", "margin: 0.1"), ("t: 0.1}", "t: 0.3}")):
        toy.edit("use_case.yaml", old, new)
    done = toy.call(*NEXT)
    assert done.code == 0, done.out
    return Later(toy, done)


def test_next_version_is_trained_and_compared_with_the_champion_of_the_version_before(later):
    assert "champion: version 1, trained on toy_rows@v1; next published version: v2" in later.done.out
    verdict, dataset = later.toy.verdict(later.done.run_id), later.toy.record(later.done.run_id, "dataset")
    assert isinstance(dataset, DatasetVersion)
    assert (dataset.revision, verdict.champion, verdict.decision) == ("v2", "1", "promote")
    (gain,) = [found.gain for found in verdict.comparisons if found.reference == "champion"]
    assert gain.low <= gain.value <= gain.high
    assert gain.groups == 20
    assert {control.name: control.status for control in verdict.controls}["benchmark"] == "pass"
    shown = later.toy.materialized(later.done.run_id)
    assert {shown[step]["lineage/dataset_version"] for step in STEPS} == {"toy_rows@v2"}
    assert {shown[step]["lineage/reused"] for step in STEPS} == {"false"}
    assert later.toy.mlflow_run(later.done.run_id).data.params["dataset.version"] == "v2"


def test_next_again_says_that_nothing_is_newer_and_writes_nothing(later):
    before = files(later.toy)
    done = later.toy.call(*NEXT)
    assert done.code == 0, done.out
    assert "champion: version 2, trained on toy_rows@v2; nothing newer" in done.out
    assert files(later.toy) == before


def test_version_before_the_champion_is_refused_before_anything_is_spent(later):
    toy, before = later.toy, later.toy.verdict_log()
    done = toy.run()
    assert done.code == 1
    assert list(toy.materialized(done.run_id)) == ["dataset", "snapshot"]
    assert "the champion saw days of this benchmark" in done.out
    assert "champion version 2 of toy_rows@v2, this run toy_rows@v1" in done.out
    assert "trainworthy datasets publish" in done.out
    assert toy.verdict_log() == before


def test_run_on_the_champions_version_reuses_all_and_its_verdict(later):
    toy, before = later.toy, later.toy.verdict_log()
    done = toy.run(intent={"dataset_version": "v2"})
    assert done.code == 0, done.out
    shown = toy.materialized(done.run_id)
    assert {shown[step]["lineage/reused"] for step in STEPS} == {"true"}
    assert toy.verdict(done.run_id) == later.toy.verdict(later.done.run_id)
    assert toy.verdict_log() == before


def test_lone_step_of_another_version_is_refused_until_the_run_config_names_it(later):
    # The test before left records of v2 as the newest.
    later.toy.run(intent={"dataset_version": "v2"})
    refused = later.toy.call(*MATERIALIZE)
    assert refused.code == 1
    assert "the newest dataset is stale: it is toy_rows@v2, and this run works with toy_rows@v1" in refused.out
    config = later.toy.call("-m", "trainworthy.pipeline.cli", "champion", "toy", "--run-config").out.strip()
    done = later.toy.call(*MATERIALIZE, "--config-json", config)
    assert done.code == 0, done.out
    assert later.toy.materialized(done.run_id)["full"]["lineage/dataset_version"] == "toy_rows@v2"


def files(toy: Toy) -> dict[str, int]:
    """When each file was written; Dagster's own are left out, since these tests open them."""
    found = (path for path in toy.var.rglob("*") if path.is_file() and path.parts[len(toy.var.parts)] != "dagster")
    return {str(path): path.stat().st_mtime_ns for path in found}
