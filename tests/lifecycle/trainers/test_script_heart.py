"""A script that calls nothing for very long is told as a warning; what only takes long is not. With a clock by hand."""

import builtins
from textwrap import indent

import own_trainers
import pytest

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.monitors.heartbeat import STACKS, Heartbeat
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, windows_in


class Clocked:
    """A heartbeat of a script with updates of so many seconds."""

    def __init__(self, folder, update_seconds: float) -> None:
        self.time = 1000.0
        folder.mkdir(parents=True, exist_ok=True)
        self.heart = Heartbeat.of_script(folder, now=lambda: self.time)
        for step in range(10):
            self.time += update_seconds
            self.heart.next(step)

    def passes(self, seconds: float) -> list[str]:
        """Time passes, and the thread wakes; what was told by then."""
        for _ in range(int(seconds / 5)):
            self.time += 5
            self.heart.look()
        return [finding.evidence for finding in self.heart.hangs]


def test_script_that_calls_nothing_for_very_long_is_told_once_as_a_warning(tmp_path, capsys):
    clocked = Clocked(tmp_path, 0.2)
    assert clocked.passes(1790) == []
    (told,) = clocked.passes(5000)
    assert "no call of the session for 180" in told
    assert "since update 9" in told
    assert clocked.heart.hangs[0].severity == "warning"
    assert "test_script_heart.py" in (tmp_path / STACKS).read_text()
    assert told in capsys.readouterr().err


def test_script_that_evaluates_for_long_between_its_calls_is_quiet(tmp_path):
    clocked = Clocked(tmp_path, 0.2)
    for _ in range(5):
        clocked.passes(1700)
        clocked.heart.called()
    assert clocked.passes(1700) == []


def test_script_whose_updates_take_very_long_is_quiet(tmp_path):
    assert Clocked(tmp_path, 600.0).passes(20_000) == []


ROWS = "        rows = batch(session, step)\n"
LOOP = "    for step in range(first, session.steps):\n"
STEP = "        session.step(loss=loss, rows=rows, model=model, optimizer=optimizer)\n"
# More than half an hour in which nothing is called, by the clock: five seconds at each wake.
HANGS = "for _ in range(400):\n    hand.time += 5\n    hand.heart.look()\n"
WAYS = {
    "between_updates": ((ROWS, f"        if step == 5:\n{indent(HANGS, ' ' * 12)}{ROWS}"),),
    "and_tells_losses_alone": (
        (ROWS, f"        if step == 5:\n{indent(HANGS, ' ' * 12)}{ROWS}"), (STEP, "        session.step(loss=loss)\n"),
    ),
    "after_the_last_update": (("    return model\n", f"{indent(HANGS, ' ' * 4)}    return model\n"),),
}  # fmt: skip


OF_SCRIPT = Heartbeat.of_script


class Hand:
    """A clock by hand, and the heartbeat that goes by it. Its thread sleeps."""

    time = 1000.0
    heart: Heartbeat

    def made(self, folder) -> Heartbeat:
        self.heart = OF_SCRIPT(folder, now=lambda: self.time)
        return self.heart


@pytest.mark.parametrize("way", WAYS)
def test_script_that_hangs_for_long_has_the_hang_as_an_alarm(splits, tmp_path, monkeypatch, way):
    hand = Hand()
    monkeypatch.setattr(Heartbeat, "of_script", hand.made)
    monkeypatch.setattr(builtins, "hand", hand, raising=False)
    # Each update takes a second.
    ticks = (LOOP, f"{LOOP}        hand.time += 1\n")
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented("hand"), ticks, *WAYS[way])
    result = run_stage(own_trainers.job(splits, folder, tmp_path / "out"))
    (alarm,) = result.alarms
    at = result.planned_steps if way == "after_the_last_update" else 5
    assert (alarm.monitor, alarm.severity, alarm.action, alarm.step) == ("hang", "warning", "warn", at)
    assert alarm.cause
    assert alarm.fix
    assert alarm.incident is not None
    assert result.steps == result.planned_steps
    written = [line.alarm for line in windows_in(tmp_path / "out" / FILE_NAME) if line.alarm is not None]
    assert [one.step for one in written] == [at]


@pytest.mark.parametrize("way", ["Lightning", "transformers"])
def test_heartbeat_ends_with_the_script(splits, tmp_path, way):
    import threading

    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way))
    run_stage(own_trainers.job(splits, folder, tmp_path / "out"))
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}
