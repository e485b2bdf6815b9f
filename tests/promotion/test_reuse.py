"""Whether an existing verdict answers: the champion's own, and one that held a model back."""

from types import SimpleNamespace
from typing import cast

import pytest

from trainworthy.lifecycle.promotion.reuse import reused_verdict, still_answers
from trainworthy.lifecycle.protocol.records import Verdict


def verdict(
    decision: str, version: str, champion: str | None, first_model: bool = False, measure_again: tuple[str, ...] = ()
) -> Verdict:
    """Only what the question reads."""
    origin = SimpleNamespace(git_dirty=False)
    values = {"decision": decision, "model_version": version, "champion": champion, "first_model": first_model}
    return cast(Verdict, SimpleNamespace(identity="equal", provenance=origin, measure_again=measure_again, **values))


@pytest.mark.parametrize(
    ("known", "champion", "first_model", "stands"),
    [
        (verdict("promote", "2", "1"), "2", False, True),
        (verdict("promote", "2", "1"), "1", False, False),
        (verdict("shadow", "3", "2"), "2", False, True),
        (verdict("shadow", "3", "2"), "4", False, False),
        (verdict("reject", "1", None), None, True, False),
        (verdict("reject", "3", "2"), "2", False, True),
        (verdict("reject", "3", "2", measure_again=("latency",)), "2", False, False),
        (verdict("shadow", "3", "2", measure_again=("latency",)), "2", False, False),
        # The first champion was judged again and not confirmed: it is live, whatever is declared now.
        (verdict("shadow", "1", "1", first_model=True), "1", False, True),
    ],
)
def test_verdict_stands_while_what_it_was_asked_is_the_same(known, champion, first_model, stands):
    assert still_answers(known, "equal", False, champion, first_model) is stands


def test_verdict_of_another_identity_or_another_state_of_the_tree_is_asked_anew():
    assert not still_answers(verdict("promote", "2", "1"), "other", False, "2", False)
    assert not still_answers(verdict("shadow", "3", "2"), "equal", True, "2", False)


def test_verdict_on_the_champion_s_artifact_under_another_decision_asks_nothing_of_a_first_model():
    known = verdict("shadow", "2", "1", first_model=True)
    assert not still_answers(known, "equal", False, "1", False)
    assert still_answers(known, "equal", False, "1", False, of_champion=True)
    assert not still_answers(known, "equal", False, "3", False, of_champion=True)


def judged(decision: str, version: str, run_id: str) -> Verdict:
    origin = SimpleNamespace(created_at="2026-11-21T10:00:00+00:00", run_id=run_id)
    return cast(Verdict, SimpleNamespace(decision=decision, model_version=version, provenance=origin))


def test_reused_verdict_says_that_it_is_one_which_judgement_was_the_last_and_who_is_live():
    older, last = judged("promote", "1", "a" * 32), judged("shadow", "2", "b" * 32)
    found = reused_verdict(older, last, "1")
    assert found.last is last
    assert found.lines == (
        "An existing verdict is reused, since nothing that it depends on has changed: "
        "promote, model version 1, 2026-11-21, run aaaaaaaa.",
        "The last judgement is another: shadow, model version 2, 2026-11-21, run bbbbbbbb.",
        "The champion is version 1.",
    )
    assert len(reused_verdict(last, last, None).lines) == 2
    assert reused_verdict(last, last, None).lines[1] == "There is no champion."
