"""Which ends of earlier runs count: planted crash loops do, and what gained, answered or says nothing does not."""

import pytest

from trainworthy.lifecycle.earlier_ends import NO_EARLIER, EarlierEnds, earlier_ends
from trainworthy.lifecycle.failure import counted, why_not_again
from trainworthy.lifecycle.protocol.attempts import AttemptRow, ChargedTo, EndedAttempt, Process, StartedAttempt
from trainworthy.lifecycle.protocol.training_figures import Attempt


def row(
    number: int, from_step: int, to_step: int | None, cause: str | None = "killed", outcome="failed", host="here"
) -> AttemptRow:
    """An attempt that began at `number` o'clock; of the run of that number."""
    name = f"a{number}"
    started = StartedAttempt(
        attempt=name, charged_to=ChargedTo(run_id=f"run-{number}", use_case="toy", step="full", identity="i"),
        job_kind="train", stage="full", launcher="local", process=Process(host=host, pid_space="p", pid=1, started=1.0),
        device="cpu", world_size=1, from_step=from_step, started_at=3600.0 * number,
    )  # fmt: skip
    ended = {"attempt": name, "outcome": outcome, "ended_at": 1.0, "seconds": 5.0, "cause": cause, "to_step": to_step}
    end = EndedAttempt.model_validate(ended | {"told": "told"})
    return AttemptRow(started=started, last_sign=1.0, ended=end)


def lost(number: int, from_step: int, host="here") -> AttemptRow:
    return row(number, from_step, None, None, "lost", host)


def counts(*oldest_first: AttemptRow, reached: int = 0) -> EarlierEnds:
    return earlier_ends(oldest_first[::-1], reached, "here")


def killed(from_step: int, to_step: int) -> Attempt:
    return Attempt(cause="killed", told="told", from_step=from_step, to_step=to_step, seconds=5.0)


def test_training_that_never_began_has_no_ends():
    assert counts() == NO_EARLIER


def test_ends_at_one_place_count_from_the_try_that_got_there():
    earlier = counts(row(1, 0, 3), row(2, 3, 5), row(3, 5, 5, "hang"), row(4, 5, 5), reached=5)
    assert [(end.cause, end.from_step, end.to_step) for end in earlier.attempts] == [
        ("killed", 3, 5), ("hang", 5, 5), ("killed", 5, 5),
    ]  # fmt: skip
    assert (earlier.reached, earlier.run_ids) == (5, {"run-2", "run-3", "run-4"})
    assert earlier.in_words() == (
        "it ended 3 times since 1970-01-01 02:00 UTC (killed 2, hang 1) without a checkpoint after step 5"
    )


@pytest.mark.parametrize(
    "newest",
    [
        row(4, 5, 38, None, "answered"),
        row(4, 5, 9, "preempted"),
        row(4, 5, 9, None, "cancelled"),
    ],
)
def test_answer_or_a_newer_checkpoint_lets_all_before_them_count_no_more(newest):
    earlier = counts(row(1, 0, 5), row(2, 5, 5), row(3, 5, 5), newest, reached=9)
    assert counted(earlier.attempts) == 0


@pytest.mark.parametrize(
    "neutral",
    [
        row(3, 5, 5, None, "cancelled"),
        row(3, 5, 5, None),
        row(3, 5, 5, "lease_lost"),
        AttemptRow(started=row(3, 5, 5).started, last_sign=1.0),
    ],
    ids=["cancelled", "no worker began", "another run's folder", "still at work"],
)
def test_what_says_nothing_of_the_training_counts_neither_way(neutral):
    earlier = counts(row(1, 0, 5), row(2, 5, 5), neutral, row(4, 5, 5), reached=5)
    assert len(earlier.attempts) == 3


def test_lost_one_counts_where_the_next_look_on_its_machine_finds_no_newer_checkpoint():
    assert [end.cause for end in counts(row(1, 0, 5), lost(2, 5), lost(3, 5), reached=5).attempts] == ["killed"] * 3
    gained = counts(row(1, 0, 5), lost(2, 5), lost(3, 5), reached=40)
    assert [(end.from_step, end.to_step) for end in gained.attempts] == [(5, 40)]
    between = counts(row(1, 0, 5), lost(2, 5), lost(3, 20), reached=20)
    assert [(end.from_step, end.to_step) for end in between.attempts] == [(5, 20), (20, 20)]


def test_lost_machine_whose_disk_went_with_it_is_held_against_nobody():
    machines = [lost(number, 0, host=f"spot-{number}") for number in range(1, 9)]
    assert counts(*machines) == NO_EARLIER


def test_checkpoint_that_a_new_machine_got_from_its_copy_is_no_gain():
    # Each begins with an empty disk, takes the copy of step 500, and is killed there.
    machines = [row(number, 0, 500, host=f"spot-{number}") for number in range(1, 5)]
    assert counted(counts(*machines).attempts) == 4


def test_rerun_in_an_empty_folder_after_an_answer_is_counted_from_its_own_checkpoints():
    # The training of the release reached 50 and answered; an equal one in another folder is killed at 5.
    earlier = counts(row(1, 0, 50, None, "answered"), row(2, 0, 5), row(3, 5, 5), reached=5)
    assert [(end.from_step, end.to_step) for end in earlier.attempts] == [(0, 5), (5, 5)]
    assert earlier.in_words().endswith("(killed 2) without a checkpoint after step 5")


@pytest.mark.parametrize(
    "gained",
    [AttemptRow(started=row(4, 5, 5, host="pod").started, last_sign=1.0), lost(4, 5, "pod"), row(4, 5, None, None)],
    ids=["open", "lost elsewhere", "nobody looked"],
)
def test_gain_that_only_a_later_attempt_shows_lets_all_before_it_count_no_more(gained):
    crashes = [row(number, 5 if number > 1 else 0, 5) for number in range(1, 4)]
    earlier = counts(*crashes, gained, row(5, 40, 40), reached=40)
    assert [(end.from_step, end.to_step) for end in earlier.attempts] == [(40, 40)]
    # This run may be the first that finds the newer checkpoint.
    assert counts(*crashes, gained, reached=40) == NO_EARLIER


def test_other_runs_ends_count_with_those_of_this_one_until_it_gets_past_them():
    earlier = counts(row(1, 0, 5), row(2, 5, 5), row(3, 5, 5), reached=5)
    assert why_not_again([killed(5, 5)], earlier=counts(row(1, 0, 5), row(2, 5, 5), reached=5)) is None
    assert why_not_again([killed(5, 5)], earlier=earlier) == (
        "it ended 4 times since 1970-01-01 01:00 UTC (killed 4) without a checkpoint after step 5"
    )
    assert why_not_again([killed(5, 6)], earlier=earlier) is None
    assert why_not_again([killed(5, 6), killed(6, 6), killed(6, 6)], earlier=earlier) is None


def test_storage_that_was_away_is_tried_once_over_all_runs():
    earlier = counts(row(1, 0, 0, "storage_outage"))
    outage = killed(0, 0).model_copy(update={"cause": "storage_outage"})
    assert why_not_again([outage]) is None
    assert "storage_outage 2" in (why_not_again([outage], earlier=earlier) or "")
