"""The report's picture and words of a training: what a window is called, and where the time went."""

import report_records as example
from matplotlib.figure import Figure

from lifecycle.records import StageReport, StageSeconds
from lifecycle.report import sections
from lifecycle.report.training_curve import told, training_curve


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
    assert "thin" not in told([single])
    assert "squares" not in told([single])
    words = told([full_of_four_passes()])
    assert all(word in words for word in ("progressive loss", "training loss", "circles", "squares"))


def test_report_says_what_share_of_the_time_made_progress_and_what_took_the_rest():
    stage = example.stage("full", 1000, 40, 0.45)
    assert sections.goodput(stage) == "not measured"
    seconds = StageSeconds(start=1.0, compute=7.0, replayed=2.0, data=0.001, replayed_steps=1200)
    told_seconds = sections.goodput(stage.model_copy(update={"seconds": seconds}))
    assert told_seconds == "70% of 10.0 s (replayed 20%, start 10%; 1,200 steps done again)"
