"""Where a stage's seconds go, with a clock that is moved by hand."""

import pytest

from trainworthy.lifecycle.engine.training.watching import clock as clocks
from trainworthy.lifecycle.engine.training.watching.clock import COMPUTE, DATA, QUEUE, START, Clock
from trainworthy.lifecycle.protocol.training_figures import StageSeconds


@pytest.fixture
def now(monkeypatch):
    """The time, in a list of one."""
    time = [100.0]
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: time[0])
    return time


def attempt(now, path, *, goes_on_from: int, to: int, saves: tuple[int, ...] = (), start: float = 2.0) -> Clock:
    """An attempt of 1 s a step: 0.1 s of data, 0.7 of compute, 0.2 of scores; checkpoints of 0.5 s."""
    clock = Clock.open(path, {START: start, QUEUE: 3.0})
    clock.resume(goes_on_from)
    for step in range(goes_on_from + 1, to + 1):
        for part, seconds in ((DATA, 0.1), (COMPUTE, 0.7)):
            now[0] += seconds
            clock.lap(part)
        now[0] += 0.2
        clock.step_done(step)
        if step in saves:
            now[0] += 0.5
            clock.checkpoint_saved(step)
    return clock


def test_clock_of_one_attempt_sums_to_its_wall_time_and_goodput_is_the_share_of_compute(now, tmp_path):
    seconds = attempt(now, tmp_path / "s", goes_on_from=0, to=10, saves=(5,)).seconds()
    assert seconds.wall == pytest.approx(2 + 3 + 10 + 0.5)
    assert seconds.goodput == pytest.approx(7 / 15.5)
    assert (seconds.queue, seconds.data, seconds.checkpoint) == pytest.approx((3, 1, 0.5))
    assert (seconds.replayed, seconds.replayed_steps) == (0, 0)


def test_clock_after_a_kill_counts_what_was_spent_since_the_checkpoint_as_replayed(now, tmp_path):
    attempt(now, tmp_path / "s", goes_on_from=0, to=8, saves=(3, 5))
    seconds = attempt(now, tmp_path / "s", goes_on_from=5, to=10).seconds()
    # Steps 6 to 8 took 3 s and were lost; both attempts started and queued.
    assert seconds.replayed == pytest.approx(3)
    assert seconds.replayed_steps == 3
    assert seconds.compute == pytest.approx(7)
    assert seconds.start == pytest.approx(4)
    assert seconds.wall == pytest.approx(2 * (2 + 3) + 8 + 2 * 0.5 + 5)


def test_clock_after_a_damaged_checkpoint_counts_from_the_one_before(now, tmp_path):
    attempt(now, tmp_path / "s", goes_on_from=0, to=8, saves=(3, 5))
    seconds = attempt(now, tmp_path / "s", goes_on_from=3, to=10).seconds()
    assert (seconds.replayed, seconds.replayed_steps) == (pytest.approx(5.5), 5)
    assert seconds.compute == pytest.approx(7)


def test_clock_killed_twice_before_any_checkpoint_counts_both_attempts_as_replayed(now, tmp_path):
    for steps in (4, 6):
        attempt(now, tmp_path / "s", goes_on_from=0, to=steps)
    seconds = attempt(now, tmp_path / "s", goes_on_from=0, to=10).seconds()
    assert seconds.replayed == pytest.approx((2 + 3 + 4) + (2 + 3 + 6))
    assert seconds.replayed_steps == 10
    assert seconds.wall == pytest.approx(3 * 5 + 4 + 6 + 10)


def test_clock_that_ends_at_a_checkpoint_has_nothing_to_replay(now, tmp_path):
    attempt(now, tmp_path / "s", goes_on_from=0, to=6, saves=(6,))
    seconds = attempt(now, tmp_path / "s", goes_on_from=6, to=10).seconds()
    assert (seconds.replayed, seconds.replayed_steps) == (pytest.approx(0), 0)


def test_clock_of_a_preemption_keeps_its_last_seconds_and_what_its_checkpoint_waited_for(now, tmp_path):
    clock = attempt(now, tmp_path / "s", goes_on_from=0, to=6, saves=(6,))
    # The checkpoint's write is waited for, then files are closed.
    now[0] += 4
    clock.checkpoint_saved(6)
    now[0] += 1
    clock.close()
    seconds = attempt(now, tmp_path / "s", goes_on_from=6, to=10).seconds()
    assert seconds.wall == pytest.approx(2 * 5 + 10 + 0.5 + 4 + 1)
    assert seconds.checkpoint == pytest.approx(4.5)
    assert (seconds.replayed, seconds.replayed_steps) == (pytest.approx(1), 0)


def test_clock_of_an_attempt_that_broke_keeps_what_it_broke_in(now, tmp_path):
    clock = attempt(now, tmp_path / "s", goes_on_from=0, to=6, saves=(5,))
    now[0] += 7
    clock.close()
    seconds = attempt(now, tmp_path / "s", goes_on_from=5, to=10).seconds()
    assert seconds.replayed == pytest.approx(1 + 7)


def test_clock_killed_between_a_checkpoint_and_its_mark_has_nothing_to_replay(now, tmp_path):
    attempt(now, tmp_path / "s", goes_on_from=0, to=6, saves=(3,))
    seconds = attempt(now, tmp_path / "s", goes_on_from=6, to=10).seconds()
    assert (seconds.replayed, seconds.replayed_steps) == (pytest.approx(0), 0)
    assert seconds.wall == pytest.approx(2 * 5 + 10 + 0.5)


def test_clock_whose_checkpoints_were_all_deleted_counts_all_of_it_as_replayed(now, tmp_path):
    attempt(now, tmp_path / "s", goes_on_from=0, to=6, saves=(1, 2, 3, 4, 5))
    seconds = attempt(now, tmp_path / "s", goes_on_from=0, to=10).seconds()
    assert (seconds.replayed, seconds.replayed_steps) == (pytest.approx(5 + 6 + 2.5), 6)


@pytest.mark.parametrize("content", [b"", b"\xff" * 400, b"half"])
def test_clock_with_a_damaged_file_starts_anew(now, tmp_path, content):
    (tmp_path / "s").write_bytes(content)
    seconds = attempt(now, tmp_path / "s", goes_on_from=5, to=6).seconds()
    assert (seconds.wall, seconds.replayed) == (pytest.approx(6), 0)


def test_clock_without_a_place_for_its_file_counts_all_the_same(now, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    seconds = attempt(now, tmp_path / "file" / "s", goes_on_from=0, to=2, saves=(1,)).seconds()
    assert seconds.wall == pytest.approx(7.5)


def test_goodput_of_no_time_is_zero():
    assert StageSeconds().goodput == 0
