from types import SimpleNamespace
from typing import Any

from verdict_logs import log_in, logged

from trainworthy.assets.champion_evidence import earlier_champions
from trainworthy.lifecycle.promotion import log


def of(**values: Any) -> Any:
    return SimpleNamespace(**values)


def run_of(monkeypatch, path, declared) -> Any:
    monkeypatch.setattr("trainworthy.assets.champion_evidence.verdict_log", lambda run: path)
    monkeypatch.setattr("trainworthy.assets.champion_evidence._then", lambda run, entry: None)
    spec = of(benchmark=of(primary=of(metric="log_loss")), promotion=of(earlier_champions=declared))
    log_of_run = of(warning=lambda text: None)
    return of(use_case=of(spec=spec), context=of(log=log_of_run), tracking=of(versions=lambda name: []))


def test_last_champions_are_told_newest_first_each_once_and_never_the_judged_model(monkeypatch, tmp_path):
    path, before = log_in(tmp_path), None
    verdicts: list[tuple[log.Action, str]] = [
        ("promote", "1"), ("shadow", "2"), ("promote", "3"), ("promote", "4"), ("promote", "3"), ("promote", "5"),
    ]  # fmt: skip
    for action, version in verdicts:
        entry = logged(
            path, action=action, model_version=version, verdict_sha256=f"{version}{before}",
            previous_verdict_sha256=before,
        )  # fmt: skip
        before = entry.verdict_sha256
    told = earlier_champions(run_of(monkeypatch, path, 1), of(name="toy", version="5", artifact_sha256="version 5"))
    assert [one.version for one in told] == ["3", "4"]
    # Their versions are gone from the registry, which is said of each and stops nothing.
    assert {one.reason for one in told} == {"it is gone from the registry"}
    assert all(one.now is None for one in told)
    assert (
        earlier_champions(run_of(monkeypatch, path, 0), of(name="toy", version="5", artifact_sha256="version 5")) == ()
    )
    assert (
        earlier_champions(
            run_of(monkeypatch, log_in(tmp_path / "none"), 2), of(name="toy", version="1", artifact_sha256="version 1")
        )
        == ()
    )
    # Under another decision an artifact answers the same: 5 and 4 are the judged one, and 3 stands for 1 as well.
    run = run_of(monkeypatch, path, 2)
    artifacts = {"1": "a", "3": "a", "4": "b", "5": "b"}
    known = [of(version=version, artifact_sha256=sha256) for version, sha256 in artifacts.items()]
    run.tracking.versions = lambda name: known
    monkeypatch.setattr("trainworthy.assets.champion_evidence._now", lambda *_: None)
    told = earlier_champions(run, of(name="toy", version="6", artifact_sha256="b"))
    assert [one.version for one in told] == ["3"]
