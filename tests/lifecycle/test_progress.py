"""What is said while nothing else is."""

import time

import pytest

from trainworthy.lifecycle import progress
from trainworthy.lifecycle.progress import never_silent, say, waits


def test_never_silent_says_that_silent_work_goes_on(capsys):
    with never_silent("promotion", silent_seconds=0.02):
        time.sleep(0.3)
    assert capsys.readouterr().err.startswith("promotion: still running, 0 s so far\n")


@pytest.mark.parametrize(("word_counts_for", "line"), [(60.0, "waits for a machine"), (0.0, "still running")])
def test_never_silent_says_that_a_machine_is_waited_for(capsys, monkeypatch, word_counts_for, line):
    monkeypatch.setattr(progress, "WAIT_SECONDS", word_counts_for)
    monkeypatch.setattr(progress._Shown, "waits_until", 0.0)
    with never_silent("smoke", silent_seconds=0.02):
        waits()
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith(f"smoke: {line}, 0 s so far\n")


def test_never_silent_adds_nothing_to_work_that_speaks(capsys):
    with never_silent("promotion", silent_seconds=60.0):
        say("fitting baselines")
    assert capsys.readouterr().err == "fitting baselines\n"


def test_never_silent_ends_with_its_work(capsys):
    with never_silent("promotion", silent_seconds=0.02):
        pass
    before = capsys.readouterr().err
    time.sleep(0.1)
    assert capsys.readouterr().err == ""
    assert before.count("\n") <= 1
