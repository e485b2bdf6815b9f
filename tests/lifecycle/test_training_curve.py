"""The report's picture and words of a training: what a window is called, and where the time went."""

import io
from typing import Any

import pytest
import report_records as example
from matplotlib.figure import Figure

from trainworthy.lifecycle.protocol.records import StageReport
from trainworthy.lifecycle.protocol.training_figures import Alarm, StageSeconds
from trainworthy.lifecycle.report import sections
from trainworthy.lifecycle.report.alarms import alarm_rows
from trainworthy.lifecycle.report.pictures import learning_curve
from trainworthy.lifecycle.report.render import render
from trainworthy.lifecycle.report.training_curve import clipped_at, drawn_sentence, training_curve


def full_of_four_passes() -> StageReport:
    """A full stage whose windows are of four passes, with both kinds of scores in evaluation mode."""
    stage = example.stage("full", 1000, 400, 0.45)
    curve = [p.model_copy(update={"pass_number": 1 + number // 10}) for number, p in enumerate(stage.curve)]
    first, later = [p for p in curve if p.pass_number == 1], [p for p in curve if p.pass_number > 1]
    marked = {"mode": "evaluation"}
    beside = [p.model_copy(update=marked) for p in first]
    beside += [p.model_copy(update=marked | {"scored": "reserve"}) for p in later]
    beside += [p.model_copy(update={"slice": "shop=a"}) for p in first]
    return stage.model_copy(update={"curve": tuple(curve), "monitored": tuple(beside)})


def test_kinds_of_windows_differ_in_more_than_colour():
    axes = Figure().subplots()
    assert training_curve(axes, [full_of_four_passes()])
    handles, labels = axes.get_legend_handles_labels()
    assert len(set(labels)) == len(labels) == 4
    lines = [handle if hasattr(handle, "get_marker") else handle.lines[0] for handle in handles]
    assert len({(line.get_marker(), line.get_linestyle(), line.get_linewidth()) for line in lines}) == 4
    drawn = [len(line.get_xdata()) for line in lines]
    # The later passes begin where the first one ends; slices are not drawn.
    assert sorted(drawn) == sorted([10, 31, 10, 30])


def test_caption_tells_of_kinds_that_are_there_and_of_no_other():
    single = example.stage("full", 1000, 40, 0.45)
    assert "thin" not in drawn_sentence([single])
    assert "squares" not in drawn_sentence([single])
    words = drawn_sentence([full_of_four_passes()])
    assert all(word in words for word in ("progressive loss", "training loss", "circles", "squares"))


def test_report_says_what_share_of_the_time_made_progress_and_what_took_the_rest():
    stage = example.stage("full", 1000, 40, 0.45)
    assert sections.goodput(stage) == "not measured"
    seconds = StageSeconds(start=1.0, compute=7.0, replayed=2.0, data=0.001, replayed_steps=1200)
    told_seconds = sections.goodput(stage.model_copy(update={"seconds": seconds}))
    assert told_seconds == "70% of 10.0 s (replayed 20%, start 10%; 1,200 steps done again)"


def alarm(step: int, monitor: str, severity: str, **changes: Any) -> Alarm:
    values = {
        "step": step, "onset": step, "last_step": step, "monitor": monitor, "severity": severity,
        "symptom": "the loss jumped", "evidence": "loss 9.1, median 0.5", "cause": "one bad batch", "fix": "look at it",
        "action": "warn",
    }  # fmt: skip
    return Alarm(**(values | changes))


def stage_with_alarms(*alarms: Alarm) -> StageReport:
    return example.stage("full", 1000, 40, 0.45).model_copy(update={"alarms": alarms})


def test_alarms_are_marked_where_they_were_raised_with_number_and_name():
    axes = Figure().subplots()
    stage = stage_with_alarms(alarm(30, "loss_spike", "warning"), alarm(7, "non_finite_loss", "critical"))
    assert training_curve(axes, [stage])
    marks = [line for line in axes.lines if str(line.get_label()).startswith("alarm")]
    assert {(line.get_xdata()[0], line.get_linestyle()) for line in marks} == {(8, "-"), (31, "--")}
    assert [text.get_text() for text in axes.texts] == ["1 non finite loss", "2 loss spike"]
    assert "vertical lines: alarms" in drawn_sentence([stage])
    assert "alarms" not in drawn_sentence([example.stage("full", 1000, 40, 0.45)])


def test_alarms_close_together_share_a_label_and_every_number_is_on_the_curve():
    early = [alarm(step, "loss_spike", "warning") for step in (2, 4, 9)]
    late = [
        alarm(390, "outlier_batch", "warning"),
        alarm(391, "loss_spike", "critical"),
        alarm(397, "plateau", "warning"),
    ]
    figure = Figure(figsize=(4.8, 3.3))
    axes = figure.subplots()
    training_curve(axes, [stage_with_alarms(*early, *late)])
    assert [text.get_text() for text in axes.texts] == ["1 loss spike", "2 loss spike", "3 loss spike", "4-6"]
    assert [line.get_linestyle() for line in axes.lines if str(line.get_label()).startswith("alarm")][-1] == "-"


def test_thin_lines_of_alarms_keep_their_colours_in_the_picture():
    from PIL import Image

    stage = stage_with_alarms(alarm(5, "loss_spike", "warning"), alarm(30, "plateau", "critical"))
    drawn = Image.open(io.BytesIO(learning_curve([stage]))).convert("RGB")
    colours = {colour for _, colour in drawn.getcolors(1 << 20) or []}
    assert {(0xA4, 0x0E, 0x26), (0xA0, 0x5F, 0x00)} <= colours


def test_labels_of_many_alarms_lie_beside_or_above_each_other():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = Figure(figsize=(4.8, 3.3))
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    stage = stage_with_alarms(*(alarm(round(1.3**step), "vanishing_gradients", "warning") for step in range(1, 23)))
    training_curve(axes, [stage])
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
    assert not any(one.overlaps(other) for number, one in enumerate(boxes) for other in boxes[:number])
    assert len(alarm_rows([stage])) == 22


def spiked(first: int, last: int, loss: float) -> StageReport:
    """A full stage whose windows from `first` to `last` lie at `loss`."""
    stage = example.stage("full", 1000, 400, 0.45)
    curve = [p.model_copy(update={"loss": loss}) if first <= n < last else p for n, p in enumerate(stage.curve)]
    return stage.model_copy(update={"curve": tuple(curve)})


@pytest.mark.parametrize(("first", "last"), [(30, 31), (24, 40)])
def test_a_spike_leaves_the_axis_by_an_arrow_and_the_healthy_windows_keep_their_shape(first: int, last: int):
    axes = Figure().subplots()
    training_curve(axes, [spiked(first, last, 438_512.0)])
    healthy = Figure().subplots()
    training_curve(healthy, [spiked(0, 0, 0.0)])
    assert axes.get_ylim()[1] < 2 * healthy.get_ylim()[1]
    assert "full leaves the axis: up to 438,512" in [text.get_text() for text in axes.texts]
    assert "arrow" in drawn_sentence([spiked(first, last, 438_512.0)])


def test_a_healthy_curve_is_not_cut_off():
    stage = example.stage("full", 1000, 400, 0.45)
    falls = [p.model_copy(update={"loss": 9.0 * 0.8**n}) for n, p in enumerate(stage.curve)]
    for curve in (stage.curve, tuple(falls), stage.curve[:1], ()):
        assert clipped_at([stage.model_copy(update={"curve": curve})]) is None


def test_report_lists_alarms_with_cause_fix_and_the_command_that_replays_them():
    hostile = alarm(
        30, "loss_spike", "warning", evidence="`<script>alert(1)</script>`", fix="try `clip_norm: 1`",
        row_keys=({"id": "17"},), count=3,
        last_step=36, incident="toy/0123/full/30-loss_spike",
    )  # fmt: skip
    page = render({**example.experiment(), "full": stage_with_alarms(hostile)}, {})
    assert "trainworthy replay toy/0123/full/30-loss_spike" in page
    assert "step 30 to 36, 3 times" in page
    assert 'One bad batch. Try <code class="wraps">clip_norm: 1</code>.' in page
    assert "First of 1 rows: id=17." in page
    assert "<script>alert(1)" not in page
    assert "Alarms: loss spike at step 30 of full" in page
    assert "Alarms of the monitors" not in render(example.experiment(), {})
