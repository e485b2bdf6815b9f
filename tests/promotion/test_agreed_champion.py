"""The champion by the verdict log, and what the registry's alias says about it."""

import pytest
from verdict_logs import log_in, logged

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.champion import agreed_champion


@pytest.fixture
def entries(tmp_path):
    """Version 1 promoted, version 2 held back."""
    path, previous = log_in(tmp_path), None
    actions: tuple[tuple[str, log.Action], ...] = (("1", "promote"), ("2", "shadow"))
    for number, action in actions:
        logged(
            path, action=action, model_version=number, verdict_sha256=number * 64,
            previous_verdict_sha256=previous,
        )  # fmt: skip
        previous = number * 64
    return log.read(path)


def test_agreed_champion_is_the_one_of_log_and_alias(entries):
    assert agreed_champion(entries, "toy", "1") == "1"
    assert agreed_champion((), "toy", None) is None


@pytest.mark.parametrize("aliased", [None, "2"])
def test_agreed_champion_with_another_alias_names_both_and_the_repair(entries, aliased):
    with pytest.raises(ChampionError, match="disagree") as caught:
        agreed_champion(entries, "toy", aliased)
    assert caught.value.value == {"verdict log": "1", "alias": aliased}
    assert "trainworthy doctor --fix" in caught.value.fix


def test_agreed_champion_that_no_verdict_promoted_is_refused(entries):
    with pytest.raises(ChampionError, match="disagree") as caught:
        agreed_champion((), "toy", "1")
    assert "remove the alias champion of toy in MLflow" in caught.value.fix


def test_agreed_champion_after_a_rollback_is_the_one_gone_back_to(entries, tmp_path):
    path = log_in(tmp_path)
    actions: tuple[tuple[log.Action, str, str], ...] = (("promote", "3", "3" * 64), ("rollback", "1", "1" * 64))
    for action, version, sha256 in actions:
        logged(
            path, action=action, model_version=version, verdict_sha256=sha256,
            previous_verdict_sha256=log.read(path)[-1].verdict_sha256, reason="late",
        )  # fmt: skip
    assert agreed_champion(log.read(path), "toy", "1") == "1"
    # An alias that did not move, as after a crash, or was moved by hand.
    with pytest.raises(ChampionError, match="disagree") as caught:
        agreed_champion(log.read(path), "toy", "3")
    assert "trainworthy rollback toy" in caught.value.fix
