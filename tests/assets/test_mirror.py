"""A training's windows in a real MLflow while it trains: after an outage, after a kill, none lost and none twice."""

import threading
from types import SimpleNamespace

import pytest

from trainworthy.assets import mirror as mirrors
from trainworthy.assets.mirror import Mirror
from trainworthy.assets.training import _mirrored as mirrored
from trainworthy.lifecycle.protocol.training_figures import Alarm, CurvePoint
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsFile, WindowSignals, windows_in
from trainworthy.resources.mlflow import Tracking

WAIT_SECONDS = 60


@pytest.fixture(scope="module", autouse=True)
def _state(tmp_path_factory):
    """A migrated database of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWORTHY_VAR", str(tmp_path_factory.mktemp("state")))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


class Watched:
    """Tracking whose log_curve says when it has written or failed, and fails while `down` is set."""

    def __init__(self):
        self.real, self.down = Tracking(), threading.Event()
        self.wrote, self.failed = threading.Event(), threading.Event()

    def log_curve(self, *given):
        if self.down.is_set():
            self.failed.set()
            raise ConnectionError("MLflow does not answer")
        self.real.log_curve(*given)
        self.wrote.set()


@pytest.fixture
def run(request):
    """What mirrored() needs of a step's run."""
    tracking, told = Watched(), []
    tracked = tracking.real.run("toy", request.node.name[:40], {})
    return SimpleNamespace(
        tracking=tracking,
        tracked=lambda: tracked,
        run_id=tracked.run_id,
        step="smoke",
        use_case=SimpleNamespace(spec=SimpleNamespace(compute=SimpleNamespace(elsewhere=False))),
        context=SimpleNamespace(log=SimpleNamespace(warning=told.append)),
        told=told,
    )


def write(folder, *steps: int, loss: float = 1.0, goes_on_from: int | None = None) -> None:
    """Windows as a worker writes them; `goes_on_from` begins an attempt."""
    file = MetricsFile(folder / FILE_NAME)
    if goes_on_from is not None:
        file.begin(goes_on_from, [])
    file.write([CurvePoint(step=n, rows=8, loss=loss / n, standard_error=0.1, learning_rate=0.1) for n in steps])
    file.close()


def checkpoint(folder, step: int) -> None:
    (folder / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)


def logged(run) -> list[tuple[int, float]]:
    history = run.tracking.real.client.get_metric_history(run.run_id, "smoke/progressive_loss")
    return sorted((metric.step, metric.value) for metric in history)


def test_windows_reach_mlflow_while_the_training_goes_on(run, tmp_path):
    with mirrored(run, tmp_path):
        write(tmp_path, 1, 2, 3)
        checkpoint(tmp_path, 2)
        assert run.tracking.wrote.wait(WAIT_SECONDS)
        # Of the third it is not known yet whether it will be lost.
        assert logged(run) == [(1, 1.0), (2, 0.5)]
        write(tmp_path, 4)
    assert logged(run) == [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)]


def test_alarm_that_names_rows_keeps_nothing_from_mlflow(run, tmp_path):
    alarm = Alarm(
        step=2, onset=2, last_step=2, monitor="outlier_batch", severity="warning", symptom="far", evidence="2",
        cause="these rows", fix="look at them", action="warn", row_keys=({"day": "2024-01-01", "shop": "south"},),
    )  # fmt: skip
    file = MetricsFile(tmp_path / FILE_NAME)
    file.write([alarm, WindowSignals(step=3, grad_norm=0.5, update_ratio=None, seconds=0.01)])
    file.close()
    write(tmp_path, 3)
    mirror = Mirror(tmp_path / FILE_NAME, lambda lines: run.tracking.log_curve(run.tracked(), run.step, lines), print)
    checkpoint(tmp_path, 3)
    assert mirror.catch_up()
    assert mirror.catch_up()
    assert logged(run) == [(3, 1 / 3)]
    (norm,) = run.tracking.real.client.get_metric_history(run.run_id, "smoke/gradient_norm")
    assert (norm.step, norm.value) == (3, 0.5)


def test_values_of_a_lost_attempt_never_reach_mlflow(run, tmp_path):
    write(tmp_path, 1, 2, 3, 4, 8, goes_on_from=0)
    checkpoint(tmp_path, 2)
    mirror = Mirror(tmp_path / FILE_NAME, lambda lines: run.tracking.log_curve(run.tracked(), run.step, lines), print)
    assert mirror.catch_up()
    # Elsewhere, as on another GPU, the same windows come out a little different, and the end may lie earlier.
    write(tmp_path, 3, 4, loss=2.0, goes_on_from=2)
    assert mirror.catch_up()
    checkpoint(tmp_path, 4)
    assert mirror.catch_up()
    assert logged(run) == [(1, 1.0), (2, 0.5), (3, 2 / 3), (4, 0.5)]
    mirror.start()
    mirror.stop(WAIT_SECONDS)
    assert logged(run) == [(1, 1.0), (2, 0.5), (3, 2 / 3), (4, 0.5)]


def test_second_write_that_the_first_one_overtakes_doubles_nothing(run, tmp_path, monkeypatch):
    write(tmp_path, 1, 2)
    lines = windows_in(tmp_path / FILE_NAME)
    # What a write sees that began before the other one's values were there.
    monkeypatch.setattr(run.tracking.real.client, "get_metric_history", lambda run_id, name: [])
    for _ in range(2):
        run.tracking.real.log_curve(run.tracked(), "smoke", lines)
    monkeypatch.undo()
    assert logged(run) == [(1, 1.0), (2, 0.5)]


def test_mlflow_that_hangs_keeps_no_stage_waiting(run, tmp_path, monkeypatch):
    monkeypatch.setattr(mirrors, "END_SECONDS", 0.01)
    asked, answers = threading.Event(), threading.Event()

    def hangs(*given):
        asked.set()
        assert answers.wait(WAIT_SECONDS)

    run.tracking.log_curve = hangs
    with mirrored(run, tmp_path):
        write(tmp_path, 1)
        checkpoint(tmp_path, 1)
        assert asked.wait(WAIT_SECONDS)
    assert "come with the stage's record" in run.told[0]
    answers.set()


def test_mlflow_that_is_down_for_a_while_stops_nothing_and_gets_all_of_it_afterwards(run, tmp_path):
    run.tracking.down.set()
    checkpoint(tmp_path, 2)
    with mirrored(run, tmp_path):
        write(tmp_path, 1)
        assert run.tracking.failed.wait(WAIT_SECONDS)
        write(tmp_path, 2)
        run.tracking.down.clear()
    assert logged(run) == [(1, 1.0), (2, 0.5)]
    assert len(run.told) == 1
    assert "training goes on" in run.told[0]


def test_mlflow_that_stays_down_ends_the_mirror_without_an_error(run, tmp_path):
    run.tracking.down.set()
    with mirrored(run, tmp_path):
        write(tmp_path, 1)
    assert logged(run) == []


def test_answer_that_got_lost_on_the_way_doubles_nothing(run, tmp_path):
    lost = []

    def send(lines):
        run.tracking.log_curve(run.tracked(), run.step, lines)
        if not lost:
            lost.append(True)
            raise TimeoutError("written, and the answer got lost")

    write(tmp_path, 1, 2)
    checkpoint(tmp_path, 2)
    mirror = Mirror(tmp_path / FILE_NAME, send, run.told.append)
    assert [mirror.catch_up(), mirror.catch_up()] == [False, True]
    assert logged(run) == [(1, 1.0), (2, 0.5)]


def test_resumed_training_and_a_new_mirror_lose_and_double_nothing(run, tmp_path):
    for steps in ((1, 2, 3), (2, 3, 4)):
        with mirrored(run, tmp_path):
            write(tmp_path, *steps)
    assert logged(run) == [(step, 1 / step) for step in (1, 2, 3, 4)]


def test_training_that_breaks_leaves_its_last_windows_and_its_own_error(run, tmp_path):
    def training():
        write(tmp_path, 5)
        raise RuntimeError("the worker broke")

    with pytest.raises(RuntimeError, match="the worker broke"), mirrored(run, tmp_path):
        training()
    assert logged(run) == [(5, 0.2)]


def test_machine_is_in_mlflow_while_the_training_goes_on_and_whatever_mlflow_does(run, tmp_path, monkeypatch):
    monkeypatch.setattr(mirrors, "MACHINE_EVERY_SECONDS", 0.02)
    sent, refused = threading.Event(), threading.Event()

    def log_system(*given):
        if not refused.is_set():
            refused.set()
            raise ConnectionError("MLflow does not answer")
        run.tracking.real.log_system(*given)
        sent.set()

    run.tracking.log_system = log_system
    with mirrored(run, tmp_path):
        assert sent.wait(WAIT_SECONDS)
    metrics = run.tracking.real.client.get_run(run.run_id).data.metrics
    assert {name for name in metrics if name.startswith("system/")} == {
        "system/cpu_utilization_percentage",
        "system/system_memory_usage_megabytes",
        "system/system_memory_usage_percentage",
    }
    assert 0 < metrics["system/system_memory_usage_percentage"] <= 100
    assert metrics["system/system_memory_usage_megabytes"] > 1
    assert not [thread for thread in threading.enumerate() if thread.name == "system metrics"]
    assert run.told == []
