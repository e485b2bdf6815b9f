"""What is said while nothing else is."""

import time

from trainworthy.lifecycle.progress import never_silent, say


def test_never_silent_says_that_silent_work_goes_on(capsys):
    with never_silent("promotion", silent_seconds=0.02):
        time.sleep(0.3)
    assert capsys.readouterr().err.startswith("promotion: still running, 0 s so far\n")


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
