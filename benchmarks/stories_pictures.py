"""The pictures of docs/data-stories.md: small, in the page's colours, readable in black and white."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import flights_faults

# A page is read over slow lines too.
MOST_BYTES = 100_000
GREY, BLUE, RED = "#8a8f98", "#1f5fbf", "#c2410c"
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10,
         "axes.titlelocation": "left", "legend.frameon": False}  # fmt: skip


def clock(of_2013: pd.DataFrame, of_2023: Mapping[str, pd.DataFrame], images: Path) -> None:
    """Departures by the hour that `time_hour` means in New York, and the temperature that each hour was given."""
    figure, (departures, temperature) = _panels(2, 3.0)
    for (name, rows), colour, style in zip(
        {"2013": of_2013, **{f"2023, {key}": value for key, value in of_2023.items()}}.items(),
        (GREY, RED, BLUE),
        ("-", "--", "-"),
        strict=True,
    ):
        hours = rows["time_hour"].dt.tz_convert("America/New_York").dt.hour
        share = hours.value_counts(normalize=True).reindex(range(24), fill_value=0)
        departures.plot(share.index, 100 * share, color=colour, linestyle=style, label=name)
        warmth = rows.groupby("hour")["temp"].mean()
        warmth = warmth[rows.groupby("hour").size() >= 500]
        temperature.plot(warmth.index, warmth - warmth.mean(), color=colour, linestyle=style, label=name)
    departures.set(title="departures by hour of New York", xlabel="hour that time_hour says", ylabel="% of the flights")
    temperature.set(title="weather joined to each hour", xlabel="hour of the schedule", ylabel="°F from the day's mean")
    for panel in (departures, temperature):
        panel.set_xticks(range(0, 24, 4))
    departures.legend()
    _save(figure, images / "story-clock.png")


def split(figures: Mapping[str, float], images: Path) -> None:
    """AUC by the way that rows were held back: the mean over the months, and each month as a point."""
    figure, axes = _panels(2, 2.4)
    for panel, (kind, title) in zip(
        axes, {"calendar": "calendar and distance", "all features": "all 45 features"}.items(), strict=True
    ):
        parts = {tuple(key.split(", ")[2:]): value for key, value in figures.items() if key.startswith(f"auc, {kind},")}
        means = {key[0]: value for key, value in parts.items() if len(key) == 1}
        _bars(panel, means, title, [RED, GREY, BLUE])
        for key, value in parts.items():
            if len(key) == 2:
                panel.plot(value, list(means).index(key[0]), "o", color="white", markeredgecolor="black", markersize=4)
    _save(figure, images / "story-split.png")


def leaks(alone: Mapping[str, float], images: Path) -> None:
    """AUC of single columns; the first is the copy of the target, the next three are known too late."""
    figure, (panel,) = _panels(1, 2.6)
    _bars(panel, alone, "AUC of one column alone", [RED, *[RED] * 3, *[BLUE] * (len(alone) - 4)])
    _save(figure, images / "story-leaks.png")


def faults(of_2013: Path, planted: Path, images: Path) -> None:
    """One figure a month that shows each fault: the months of 2013, and the month that was planted."""
    measures: dict[str, tuple[str, Callable[[pd.DataFrame], float]]] = {
        "miles_as_kilometres": ("mean distance", lambda rows: rows["distance"].mean()),
        "nulls": ("% without temperature", lambda rows: 100 * rows["temp"].isna().mean()),
        "lost_carrier": ("flights", lambda rows: float(len(rows))),
        "clipped_delays": ("longest delay, minutes", lambda rows: rows["arr_delay"].max()),
        "backfill": ("% late", lambda rows: 100 * (rows["arr_delay"] > 15).sum() / rows["arr_delay"].notna().sum()),
    }
    columns = ["distance", "temp", "arr_delay"]
    months = {path.stem: pd.read_parquet(path, columns=columns) for path in sorted(of_2013.glob("*.parquet"))}
    figure, panels = _panels(len(measures), 2.2)
    for panel, (name, (title, measure)) in zip(panels, measures.items(), strict=True):
        month = flights_faults.FAULTS[name].month
        faulty = measure(pd.read_parquet(planted / name / f"{month}.parquet", columns=columns))
        panel.plot(range(1, 13), [measure(rows) for rows in months.values()], color=GREY, marker=".")
        panel.plot([int(month[-2:])], [faulty], "X", color=RED, markersize=8)
        panel.set_title(f"{name.replace('_', ' ')}\n{title}", fontsize=8)
        panel.set_xticks([1, 4, 8, 12])
        panel.set_xlabel("month")
        panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
    _save(figure, images / "story-faults.png")


def _bars(panel: Axes, values: Mapping[str, float], title: str, colours: list[str]) -> None:
    names = list(values)
    panel.barh(names, [values[name] for name in names], color=colours)
    panel.invert_yaxis()
    panel.set(xlim=(0.5, 1.0), title=title, xlabel="AUC; 0.5 is a guess")
    for place, name in enumerate(names):
        wide = values[name] > 0.56
        start = 0.505 if wide else values[name] + 0.005
        panel.text(start, place, f"{values[name]:.3f}", va="center", color="white" if wide else "black")


def _panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    rcParams.update(STYLE)
    figure = Figure(figsize=(9.5, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=110)
    size = path.stat().st_size
    assert size <= MOST_BYTES, f"{path.name} takes {size:,} bytes, more than {MOST_BYTES:,}"
    print(f"{path}: {size:,} bytes")
