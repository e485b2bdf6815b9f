from trainworthy.assets.earlier_champions import earlier_champions
from trainworthy.lifecycle.promotion import log


class Tracking:
    def versions(self, name):
        return []


class Of:
    """An object with these attributes."""

    def __init__(self, **values):
        self.__dict__.update(values)


def run_of(monkeypatch, path, declared):
    monkeypatch.setattr("trainworthy.assets.earlier_champions.verdict_log", lambda run: path)
    monkeypatch.setattr("trainworthy.assets.earlier_champions._then", lambda run, entry: None)
    spec = Of(benchmark=Of(primary=Of(metric="log_loss")), promotion=Of(earlier_champions=declared))
    return Of(use_case=Of(spec=spec), tracking=Tracking())


def test_last_champions_are_told_newest_first_each_once_and_never_the_judged_model(monkeypatch, tmp_path):
    path, before = tmp_path / "log.jsonl", None
    for action, version in (
        ("promote", "1"), ("shadow", "2"), ("promote", "3"), ("promote", "4"), ("promote", "3"), ("promote", "5"),
    ):  # fmt: skip
        entry = log.append(
            path, use_case="toy", action=action, model_version=version, verdict_sha256=f"{version}{before}",
            previous_verdict_sha256=before,
        )  # fmt: skip
        before = entry.verdict_sha256
    told = earlier_champions(run_of(monkeypatch, path, 1), Of(), Of(name="toy", version="5"))
    assert [one.version for one in told] == ["3", "4"]
    # Their versions are gone from the registry, which is said of each and stops nothing.
    assert {one.reason for one in told} == {"it is gone from the registry"}
    assert all(one.now is None for one in told)
    assert earlier_champions(run_of(monkeypatch, tmp_path / "none", 2), Of(), Of(name="toy", version="1")) == ()
