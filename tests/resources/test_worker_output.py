"""What a worker writes: kept by line, shown on the terminal as it comes, and never in the worker's way."""

import os
import subprocess
import sys

import pytest
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager

from trainworthy.resources import worker_output
from trainworthy.resources.compute_logs import WorkerLogs
from trainworthy.resources.worker_output import TERMINAL, kept_output, whole_lines

KEY = ["run", "compute_logs", "abcd"]
SAYS = 'import sys; print("out", sys.stderr.isatty()); print("a\\rb\\rdone\\nlast words", end="", file=sys.stderr)'


@pytest.fixture
def manager(tmp_path):
    return WorkerLogs(str(tmp_path))


def run(manager, code=SAYS, title="toy/smoke"):
    with kept_output(manager, title) as (out, error):
        return subprocess.run([sys.executable, "-c", code], stdout=out, stderr=error, check=False).returncode


def kept(manager):
    data = manager.get_log_data(KEY)
    return data.stdout.decode(), data.stderr.decode()


def test_output_of_two_workers_is_kept_under_their_titles_and_reaches_the_terminal(manager, capfd):
    with manager.capture_logs(KEY):
        run(manager)
        run(manager, "import os; os.write(2, b'killed'); os.kill(os.getpid(), 9)", title="toy/pilot")
        assert not manager.is_capture_complete(KEY)
    out, error = kept(manager)
    assert out == "== toy/smoke\nout False\n== toy/pilot\n"
    assert error == "== toy/smoke\ndone\nlast words\n== toy/pilot\nkilled\n"
    assert manager.is_capture_complete(KEY)
    assert capfd.readouterr().err == "a\rb\rdone\nlast wordskilled"


def test_worker_below_a_terminal_has_a_terminal_and_the_file_no_redraws(manager, monkeypatch):
    screen, terminal = os.openpty()
    monkeypatch.setattr(worker_output, "TERMINAL", (terminal, terminal))
    with manager.capture_logs(KEY):
        assert run(manager) == 0
    os.close(terminal)
    out, error = kept(manager)
    assert (out, error) == ("== toy/smoke\nout True\n", "== toy/smoke\ndone\nlast words\n")
    assert b"a\rb\rdone" in os.read(screen, 4096)
    os.close(screen)


def test_terminal_that_is_gone_stops_no_worker_and_loses_no_line(manager, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(worker_output, "TERMINAL", (write, write))
    with manager.capture_logs(KEY):
        assert run(manager, "print('x' * 300_000)") == 0
    os.close(write)
    assert len(kept(manager)[0]) == len("== toy/smoke\n") + 300_001


def test_process_that_left_the_worker_s_group_holds_the_step_up_for_seconds_only(manager, monkeypatch):
    monkeypatch.setattr(worker_output, "LAST_WORDS_SECONDS", 0.1)
    code = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    with manager.capture_logs(KEY):
        assert run(manager, code) == 0
    os.kill(int(kept(manager)[0].splitlines()[-1]), 9)


def test_instance_that_keeps_none_or_is_between_runs_gives_this_process_s_own(manager):
    for other in (manager, NoOpComputeLogManager()):
        with kept_output(other, "toy") as given:
            assert given == TERMINAL


@pytest.mark.parametrize(
    ("output", "lines", "rest"),
    [(b"a\r\nb", b"a\n", b"b"), (b"1%\r2%\rend\n3%\r", b"end\n", b"3%\r"), (b"", b"", b""), (b"1%\r2%", b"", b"2%")],
)
def test_lines_are_what_a_terminal_shows_in_the_end(output, lines, rest):
    assert whole_lines(output) == (lines, rest)
