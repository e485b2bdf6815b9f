"""Who stands as champion after promotions and rollbacks, and which versions were taken off."""

import pytest
from known import known

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion.history import champion_stack, predecessor, rollback_target, rolled_back, tenures
from trainworthy.lifecycle.promotion.log import LogEntry, champion


def entries(*told: str) -> tuple[LogEntry, ...]:
    """`promote 1` or `rollback 1`, an entry each, one a minute from 10:00."""
    found, promoted = [], {}
    for number, (action, version) in enumerate((one.split() for one in told), start=1):
        sha256 = promoted[version] if action == "rollback" else f"{number}"
        values = {
            "number": number, "use_case": "toy", "action": action, "model_version": version,
            "verdict_sha256": sha256, "previous_verdict_sha256": None, "previous_entry_sha256": None,
            "written_at": f"2026-11-21T10:{number:02d}:00+00:00", "entry_sha256": f"{number}",
            "reason": f"reason {number}" if action == "rollback" else "",
        }  # fmt: skip
        if action == "promote":
            promoted[version] = f"{number}"
        found.append(LogEntry.model_validate(values))
    return tuple(found)


@pytest.mark.parametrize(
    ("told", "versions"),
    [
        ([], []),
        (["shadow 1", "reject 2"], []),
        (["promote 1"], ["1"]),
        (["promote 1", "shadow 2", "promote 3"], ["1", "3"]),
        (["promote 1", "promote 2", "rollback 1"], ["1"]),
        (["promote 1", "promote 2", "rollback 1", "reject 2", "promote 3"], ["1", "3"]),
        (["promote 1", "promote 2", "rollback 1", "promote 3", "rollback 1"], ["1"]),
        (["promote 1", "promote 2", "promote 3", "rollback 2", "rollback 1"], ["1"]),
        # Judged again and promoted again: it still replaces what it replaced.
        (["promote 1", "promote 2", "promote 2"], ["1", "2"]),
        (["promote 1", "promote 1"], ["1"]),
        (["promote 1", "promote 2", "promote 1"], ["1", "2", "1"]),
    ],
)
def test_champion_stack_promotions_are_pushed_and_rollbacks_pop(told, versions):
    found = entries(*told)
    assert [entry.model_version for entry in champion_stack(found)] == versions
    assert all(entry.action == "promote" for entry in champion_stack(found))
    live = champion(found)
    assert (live.model_version if live else None) == (versions[-1] if versions else None)


def test_predecessor_is_the_promotion_with_its_newest_verdict():
    found = predecessor(entries("promote 1", "promote 1", "shadow 2", "promote 3"), {})
    assert found is not None
    assert (found.model_version, found.verdict_sha256) == ("1", "2")


def test_artifact_that_was_taken_off_does_not_come_back_under_another_decision():
    of = {"1": "A", "2": "B", "3": "A", "4": "C"}
    off = entries("promote 1", "promote 2", "promote 3", "rollback 2")
    assert predecessor(off, of) is None
    # Of two artifacts; from one decision to another of the same one; made champion again since.
    assert known(predecessor(off, {**of, "1": "D"})).model_version == "1"
    decision = entries("promote 2", "promote 1", "promote 3", "rollback 1", "promote 4")
    assert known(predecessor(decision, of)).model_version == "1"
    again = entries("promote 1", "promote 2", "promote 3", "rollback 2", "promote 3", "promote 4")
    assert known(predecessor(again, of)).model_version == "3"


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ([], "no champion to roll back"),
        (["reject 1"], "no champion to roll back"),
        (["promote 1"], "there is no earlier champion than version 1"),
        (["promote 1", "promote 1"], "there is no earlier champion than version 1"),
        (["promote 1", "promote 2", "rollback 1"], "there is no earlier champion than version 1"),
        # Version 1 came back over 2 and was taken off: a second rollback does not bring it a third time.
        (["promote 1", "promote 2", "promote 1", "rollback 2"], "there is no earlier champion than version 2"),
    ],
)
def test_rollback_target_that_does_not_exist_is_told(told, problem):
    assert predecessor(entries(*told), {}) is None
    with pytest.raises(ChampionError, match=problem):
        rollback_target(entries(*told), {})


@pytest.mark.parametrize(
    ("told", "version", "reason"),
    [
        (["promote 1", "promote 2"], "2", None),
        (["promote 1", "promote 2", "rollback 1"], "2", "reason 3"),
        (["promote 1", "promote 2", "rollback 1"], "1", None),
        (["promote 1", "promote 2", "rollback 1", "reject 2"], "2", "reason 3"),
        (["promote 1", "promote 2", "rollback 1", "promote 3"], "2", "reason 3"),
        (["promote 1", "promote 2", "rollback 1", "promote 3", "rollback 1"], "3", "reason 5"),
        (["promote 1", "promote 2", "rollback 1", "promote 2"], "2", None),
        # Taken off and then gone back to: it is champion again.
        (["promote 1", "promote 2", "promote 1", "rollback 2", "rollback 1"], "1", None),
    ],
)
def test_rolled_back_version_is_known_until_it_is_champion_again(told, version, reason):
    found = rolled_back(entries(*told), version)
    assert (found.reason if found else None) == reason


def test_rolled_back_sentence_names_version_day_and_reason():
    found = rolled_back(entries("promote 1", "promote 2", "rollback 1"), "2")
    assert found is not None
    assert found.sentence == "Version 2 was rolled back on 2026-11-21: reason 3"


def test_tenures_follow_each_other_and_the_last_is_open():
    found = tenures(entries("promote 1", "shadow 2", "promote 3", "rollback 1"))
    assert [(t.entry.model_version, t.entry.written_at[14:16], t.until and t.until[14:16]) for t in found] == [
        ("1", "01", "03"),
        ("3", "03", "04"),
        ("1", "04", None),
    ]
    assert tenures(()) == ()
