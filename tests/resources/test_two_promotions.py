"""Two promotions at once in one registry, a real MLflow: by one state they take turns, by two one of them wins."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from registry import register

from trainworthy.assets import champion
from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import VerdictLog
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.shared.store import HeldLease
from trainworthy.resources.mlflow import Tracking


def judging(tmp_path: Path, place: str) -> Any:
    """A run whose verdicts lie in that folder, and whose registry is the environment's."""
    (tmp_path / place).mkdir(exist_ok=True)
    workspace = SimpleNamespace(
        shared=FolderState(tmp_path / place), records=StateRecords(FolderState(tmp_path / place)),
        require_shared=lambda: None,
    )  # fmt: skip
    return SimpleNamespace(use_case=SimpleNamespace(name="toy"), workspace=workspace, tracking=Tracking())


def promote(run: Any, held: HeldLease, version: str) -> None:
    """As a judgement ends: the entry, then the alias."""
    entries = log.read(champion.verdict_log(run))
    before = entries[-1].verdict_sha256 if entries else None
    champion.enter(
        run, held, action="promote", model_version=version, verdict_sha256=version * 64, previous_verdict_sha256=before
    )
    champion.move_alias(run.tracking, "toy", held, version, None)


def aliased() -> str | None:
    model = Tracking().aliased("toy")
    return model and model.version


def test_of_two_states_that_promote_in_one_registry_at_once_one_wins_and_the_other_enters_nothing(state, tmp_path):
    for digit in "bc":
        register(Tracking(), Tracking().run("toy", f"{digit}-0000", {}), state, digit * 64)
    one, other = judging(tmp_path, "one"), judging(tmp_path, "other")
    with (
        champion.judged_alone(one.workspace, one.use_case) as held,
        champion.judged_alone(other.workspace, other.use_case) as others,
    ):
        # Each has a lease, and judges against no champion.
        assert (champion.champion_of(one), champion.champion_of(other)) == (None, None)
        promote(one, held, "2")
        with pytest.raises(ChampionError, match="was moved while this run judged; nothing is entered") as caught:
            promote(other, others, "3")
    assert caught.value.code == "champion.moved"
    assert caught.value.value == {"judged against": None, "alias": "2"}
    assert "name one TRAINWORTHY_STATE for both" in caught.value.fix
    assert (aliased(), log.read(champion.verdict_log(other))) == ("2", ())
    found = champion.champion_of(one)
    assert found is not None
    assert found.version == "2"
    # Nor does a repair of the other's log take it away, once that has a champion of its own.
    entries = (log.read(champion.verdict_log(one))[0].model_copy(update={"model_version": "3"}),)
    with pytest.raises(ChampionError, match="another state promoted it, or somebody moved the alias") as caught:
        champion.refuse_alias_of_another_log(Tracking(), other.workspace.records, "toy", entries)
    assert caught.value.code == "champion.other_log"


def test_of_two_machines_with_one_state_the_later_one_promotes_against_the_earlier_ones_champion(state, tmp_path):
    for digit in "bc":
        register(Tracking(), Tracking().run("toy", f"{digit}-0000", {}), state, digit * 64)
    judged_against: list[str | None] = []

    def judge(version: str) -> None:
        run = judging(tmp_path, "shared")
        with champion.judged_alone(run.workspace, run.use_case) as held:
            found = champion.champion_of(run)
            judged_against.append(found and found.version)
            promote(run, held, version)

    machines = [threading.Thread(target=judge, args=[version]) for version in "23"]
    for machine in machines:
        machine.start()
    for machine in machines:
        machine.join()
    entries = log.read(VerdictLog(FolderState(tmp_path / "shared"), "toy"))
    assert judged_against == [None, entries[0].model_version]
    assert aliased() == entries[1].model_version
    assert [entry.token for entry in entries] == [1, 2]
