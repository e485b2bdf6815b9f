"""What keeps a rollback from happening once its worker has answered, or its registry or record is gone."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from verdict_logs import log_in, logged, unexpected

from trainworthy.assets.champion import judged_alone
from trainworthy.assets.rollback import roll_back
from trainworthy.lifecycle.errors import ChampionError, LeaseLostError, RecordError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.controls import ANSWER_TOLERANCE
from trainworthy.lifecycle.protocol.latency import Latency
from trainworthy.lifecycle.protocol.records import Verdict
from trainworthy.lifecycle.protocol.results import GoldenAnswers, VerifyResult
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.resources.mlflow_model import RegisteredModel

LATENCY = Latency(wall_ms=1, cpu_ms=1, least_ms=1, most_ms=1, rounds=1, load=0, cores=2)


def answered(difference: float) -> VerifyResult:
    golden = GoldenAnswers(requests=50, difference=difference)
    return VerifyResult(golden=golden, load_seconds=0.5, latency=LATENCY)


class Registry:
    """Two versions; the alias breaks if it is told to."""

    uri = "sqlite:///mlflow.db"

    def __init__(self, folder, broken: bool = False) -> None:
        self.live, self.broken = "2", broken
        for version in ("1", "2"):
            (folder / version / "artifacts" / "artifact").mkdir(parents=True)
        self.models = [RegisteredModel("toy", version, (folder / version).as_uri(), {}) for version in ("2", "1")]

    def version(self, name: str, version: str) -> RegisteredModel | None:
        return next((model for model in self.models if model.version == version), None)

    def champion(self, name: str) -> RegisteredModel:
        return next(model for model in self.models if model.version == self.live)

    aliased = champion

    def set_champion(self, name: str, version: str, previous: str | None) -> None:
        if self.broken:
            raise OSError("the registry is gone")
        self.live = version


@pytest.fixture
def run(tmp_path):
    """Version 2 replaced version 1; `jobs` are those that the worker was given."""
    jobs: list[Any] = []
    state = StateFolder(tmp_path / "state")
    for version, previous in (("1", None), ("2", "1" * 64)):
        logged(
            log_in(state.root), action="promote", model_version=version, verdict_sha256=version * 64,
            previous_verdict_sha256=previous,
        )  # fmt: skip

    def launch(context: object, job: object, charged_to: object) -> VerifyResult:
        jobs.append(job)
        return answered(run.difference)

    records = SimpleNamespace(get=lambda *_: Verdict.model_construct(binds={"model": "a" * 64}))
    run = SimpleNamespace(
        workspace=SimpleNamespace(
            state=state, shared=FolderState(state.root), records=records, require_shared=lambda: None
        ), use_case=SimpleNamespace(name="toy"), reason="late",
        context=SimpleNamespace(run_id="1", log_event=lambda _: None, log=SimpleNamespace(info=lambda _: None)),
        tracking=Registry(tmp_path / "models"), launcher=SimpleNamespace(run=launch), jobs=jobs, difference=0.0,
    )  # fmt: skip
    return cast(Any, run)


def rolled(run: Any) -> dict[str, Any]:
    with judged_alone(run.workspace, run.use_case) as held:
        return roll_back(run, held)


def entries(run: Any):
    return log.read(log_in(run.workspace.state.root))


def test_rollback_asks_the_registered_files_by_the_hash_that_the_verdict_bound(run):
    rolled(run)
    (job,) = run.jobs
    assert (job.artifact, job.artifact_sha256) == (str(run.tracking.models[1].artifact), "a" * 64)
    assert [entry.action for entry in entries(run)] == ["promote", "promote", "rollback"]
    assert run.tracking.live == "1"


def test_rollback_whose_alias_was_moved_while_the_worker_answered_enters_nothing(run):
    run.tracking.aliased = lambda name: run.tracking.models[1]
    with pytest.raises(ChampionError, match="was moved while this run judged") as caught:
        rolled(run)
    assert caught.value.value == {"judged against": "2", "alias": "1"}
    assert (len(entries(run)), run.tracking.live) == (2, "2")


@pytest.mark.parametrize("difference", [ANSWER_TOLERANCE * 1.01, 2.0])
def test_rollback_to_a_model_that_answers_otherwise_is_refused_and_changes_nothing(run, difference):
    run.difference = difference
    with pytest.raises(ChampionError, match="answers its golden requests otherwise"):
        rolled(run)
    assert (len(entries(run)), run.tracking.live) == (2, "2")


def test_rollback_to_a_version_that_decides_otherwise_than_its_verdict_bound_is_refused_and_changes_nothing(run):
    file, bound = run.tracking.models[1].decision_file, "a" * 64
    file.write_bytes(b"{}")
    for binds in ({"model": "a" * 64}, {"model": "a" * 64, "decision": bound}):
        run.workspace.records.get = lambda *_, binds=binds: Verdict.model_construct(binds=binds)
        with pytest.raises(ChampionError, match="does not decide by what its verdict was about"):
            rolled(run)
    file.unlink()
    with pytest.raises(ChampionError, match="does not decide by what its verdict was about") as caught:
        rolled(run)
    assert caught.value.value == {"verdict": bound, "registered": None}
    assert (len(entries(run)), run.tracking.live, run.jobs) == (2, "2", [])


def test_rollback_to_a_version_that_is_gone_from_the_registry_is_refused_and_changes_nothing(run):
    del run.tracking.models[1]
    with pytest.raises(ChampionError, match="gone from the registry"):
        rolled(run)
    assert (len(entries(run)), run.tracking.live, run.jobs) == (2, "2", [])


def test_rollback_without_the_record_of_the_verdict_is_refused_and_changes_nothing(run):
    def missing(*_: object) -> None:
        raise RecordError("the promotion record is missing", fix="")

    run.workspace.records.get = missing
    with pytest.raises(RecordError):
        rolled(run)
    assert (len(entries(run)), run.tracking.live, run.jobs) == (2, "2", [])


def test_rollback_with_an_alias_that_was_moved_by_hand_is_refused_and_changes_nothing(run):
    run.tracking.live = "1"
    with pytest.raises(ChampionError, match="disagree"):
        rolled(run)
    assert len(entries(run)) == 2


def test_rollback_that_ends_between_log_and_alias_is_told_by_the_next_one_with_the_repair(run):
    run.tracking.broken = True
    with pytest.raises(OSError, match="registry is gone"):
        rolled(run)
    assert entries(run)[-1].action == "rollback"
    run.tracking.broken = False
    with pytest.raises(ChampionError, match="disagree") as caught:
        rolled(run)
    assert "trainworthy doctor --fix" in caught.value.fix


def test_rollback_whose_lease_was_lost_meanwhile_changes_nothing(run, taken_over):
    run.launcher.run = taken_over(run.launcher.run)
    with pytest.raises(LeaseLostError, match="this one was away for longer than its lease") as caught:
        rolled(run)
    assert (caught.value.code, "toy.jsonl" in str(caught.value.value)) == ("lease_lost", True)
    assert (len(entries(run)), run.tracking.live) == (2, "2")


def test_rollback_whose_lease_was_lost_after_its_entry_moves_no_alias(run, taken_over, monkeypatch):
    monkeypatch.setattr(log, "append", taken_over(log.append))
    with pytest.raises(LeaseLostError, match="toy version 1 is entered in the verdict log") as caught:
        rolled(run)
    assert caught.value.code == "alias_behind"
    assert "doctor --fix" in caught.value.fix
    # As after a crash: the log is ahead, which every later step says and `doctor --fix` mends.
    assert (len(entries(run)), run.tracking.live) == (3, "2")


@pytest.fixture
def taken_over(run):
    """Makes of a function one after which another process has the lease: a file server forgot who had it."""

    def made(function):
        def called(*given, **named):
            found = function(*given, **named)
            (run.workspace.state.root / "verdicts" / "toy.lock").unlink()
            with log_in(run.workspace.state.root).lease(unexpected):
                return found

        return called

    return made
