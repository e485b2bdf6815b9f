"""A judgement that stops on its way: its record is there before its entry in the log, and counts only with it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from verdict_logs import log_in, logged

from tests.lifecycle import report_records
from trainworthy.assets import step
from trainworthy.assets.champion import champion_of
from trainworthy.assets.promotion import verdict_stands
from trainworthy.assets.step import StepOutcome
from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.records import Verdict
from trainworthy.lifecycle.storage.records import StateRecords, record_sha256
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.resources.mlflow_model import RegisteredModel


class StopError(BaseException):
    """The process is killed here."""


@pytest.fixture
def verdict() -> Verdict:
    found = report_records.judged("promote")["promotion"]
    assert isinstance(found, Verdict)
    return found


@pytest.fixture
def run(tmp_path, verdict, monkeypatch) -> Any:
    """A judgement that has come to this verdict; the registry has its model, and `live` is the alias."""
    monkeypatch.setattr(step, "_record", lambda *_: verdict)
    model = RegisteredModel(
        verdict.use_case, verdict.model_version, "file:///", {"artifact_sha256": verdict.binds["model"]}
    )
    run = SimpleNamespace(
        use_case=SimpleNamespace(name=verdict.use_case, folder=tmp_path), step="promotion", run_id="1", trains=True,
        identity=verdict.identity, declared=SimpleNamespace(first_model=False), live=False,
        workspace=SimpleNamespace(
            shared=FolderState(tmp_path), records=StateRecords(FolderState(tmp_path)), keep_files=lambda body: None
        ),
        tracking=SimpleNamespace(uri="sqlite:///", champion=lambda name: model if run.live else None),
    )  # fmt: skip
    return run


def judge(run: Any, after: Any) -> None:
    step._made(run, Meter(), lambda run: StepOutcome(checks=(), body=cast(Any, object()), after=after))


def stop(_: object) -> None:
    raise StopError


def enter(run: Any, verdict: Verdict) -> None:
    logged(
        log_in(run.use_case.folder, verdict.use_case), action="promote", model_version=verdict.model_version,
        verdict_sha256=record_sha256(verdict), previous_verdict_sha256=None,
    )  # fmt: skip


def found(run: Any, verdict: Verdict) -> Any:
    """What an equal judgement that comes next is offered for reuse."""
    return run.workspace.records.by_identity(verdict.use_case, "promotion", verdict.identity)


def test_verdict_that_stopped_before_its_entry_is_found_and_not_reused(run, verdict):
    with pytest.raises(StopError):
        judge(run, stop)
    records = run.workspace.records
    # All pointers lead to it: the order is the record, they, the log, the alias.
    assert found(run, verdict) == records.newest(verdict.use_case, "promotion") == verdict
    assert log.read(log_in(run.use_case.folder, verdict.use_case)) == ()
    assert not verdict_stands(run, found(run, verdict))
    # It made no champion, so that it is judged anew against the same.
    assert champion_of(run) is None
    enter(run, verdict)
    run.live = True
    assert verdict_stands(run, found(run, verdict))


def test_verdict_that_stopped_between_its_entry_and_the_alias_is_told_by_the_next_step(run, verdict):
    def enter_and_stop(record: Verdict) -> None:
        enter(run, record)
        raise StopError

    with pytest.raises(StopError):
        judge(run, enter_and_stop)
    # What the entry names is there.
    (entry,) = log.read(log_in(run.use_case.folder, verdict.use_case))
    assert run.workspace.records.get(verdict.use_case, "promotion", entry.verdict_sha256) == verdict
    with pytest.raises(ChampionError, match="disagree"):
        champion_of(run)
    assert not verdict_stands(run, found(run, verdict))


def test_verdict_whose_record_cannot_be_written_is_not_entered(run, verdict, monkeypatch):
    monkeypatch.setattr(StateRecords, "put", lambda *given, **named: stop(given))
    with pytest.raises(StopError):
        judge(run, lambda record: enter(run, record))
    assert log.read(log_in(run.use_case.folder, verdict.use_case)) == ()
