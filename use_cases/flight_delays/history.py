"""What had happened by a flight's scheduled departure: delays at the origin, of the carrier, of the aircraft.

The rule against leakage: a feature reads an outcome only if that outcome *happened strictly before* the row's
`sched_dep`, and only of flights scheduled before it. A cancellation has no instant in the source, so a cancelled
flight is one that "has not departed yet", as it looked on the day. The second half of the rule makes the file of a
month independent of all later months: a next version only adds files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

LATE_MINUTES = 15
# Below an hour short an aircraft is late anyhow, above three hours to spare nothing changes (January to August).
SLACK_RANGE_MINUTES = (-60, 180)
MAX_HOURS_BACK = 36
NEVER = 1 << 39  # an instant (minutes since 1970) after every real one
SPAN = 1 << 40  # room for one group's instants in a combined (group, instant) key


@dataclass(frozen=True)
class Events:
    """Instants in minutes since 1970 (UTC) and delays in minutes, each `(N,)` int64.

    `departed` and `arrived` say from when on an outcome counts as seen: never before the scheduled departure, so an
    early departure is seen at its scheduled time and no row can see itself; `NEVER` for cancelled or diverted flights.
    """

    scheduled: Ints
    scheduled_arrival: Ints
    departed: Ints
    arrived: Ints
    dep_delay: Ints
    arr_delay: Ints

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Events:
        """Read the instants from the raw delays."""
        import numpy as np

        scheduled, scheduled_arrival = minutes(rows["sched_dep"]), minutes(rows["sched_arr"])
        dep_delay, arr_delay = (rows[name].fillna(0).to_numpy(np.int64) for name in ("dep_delay", "arr_delay"))
        departed = np.where(rows["dep_delay"].notna(), np.maximum(scheduled, scheduled + dep_delay), NEVER)
        arrived = np.where(rows["arr_delay"].notna(), np.maximum(departed, scheduled_arrival + arr_delay), NEVER)
        return cls(scheduled, scheduled_arrival, departed, arrived, dep_delay, arr_delay)


def recent_delays(rows: pd.DataFrame, events: Events) -> dict[str, Floats]:
    """Delays of the last hours at the origin, of the carrier there, and towards the destination."""
    origin, carrier, dest = (_codes(rows, by) for by in (["origin"], ["origin", "carrier"], ["dest"]))
    return {
        **_departures("origin", origin, events, hours=1),
        **_departures("origin", origin, events, hours=3),
        **_departures("carrier", carrier, events, hours=3),
        **_departures("dest", dest, events, hours=3),
        **_queue("origin", origin, events, hours=2),
        **_queue("carrier", carrier, events, hours=2),
        **_queue("dest", dest, events, hours=4),
        **_landings("origin", origin, events, hours=3),
        **_landings("dest", dest, events, hours=6),
    }


def _departures(name: str, group: Ints, events: Events, hours: int) -> dict[str, Floats]:
    """Mean departure delay, and share later than 15 minutes, of the group's departures in the last hours."""
    late = (events.dep_delay > LATE_MINUTES).astype("int64")
    seen = _before(group, events.departed, events.scheduled)
    earlier = _before(group, events.departed, events.scheduled - hours * 60)
    count = seen() - earlier()
    return {
        f"{name}_dep_delay_{hours}h": _ratio(seen(events.dep_delay) - earlier(events.dep_delay), count),
        f"{name}_late_share_{hours}h": _ratio(seen(late) - earlier(late), count),
    }


def _queue(name: str, group: Ints, events: Events, hours: int) -> dict[str, Floats]:
    """Of the flights scheduled in the last hours: the share not departed by now, and how long they have waited.

    A flight waits from its scheduled departure until it departs or, cancelled or not, until it leaves the window.
    """
    import numpy as np

    now, window = events.scheduled, hours * 60
    leaves = np.minimum(events.departed, events.scheduled + window)
    entered, left = _before(group, events.scheduled, now), _before(group, leaves, now)
    in_window = entered() - _before(group, events.scheduled, now - window)()
    waiting = entered() - left()
    waited = waiting * now - (entered(events.scheduled) - left(events.scheduled))
    return {
        f"{name}_waiting_share_{hours}h": _ratio(waiting, in_window),
        f"{name}_waiting_minutes_{hours}h": _ratio(waited, in_window),
    }


def _landings(name: str, group: Ints, events: Events, hours: int) -> dict[str, Floats]:
    """Of the group's flights that landed in the last hours: mean arrival delay, and delay gained after departure."""
    seen = _before(group, events.arrived, events.scheduled)
    earlier = _before(group, events.arrived, events.scheduled - hours * 60)
    gained, count = events.arr_delay - events.dep_delay, seen() - earlier()
    return {
        f"{name}_arr_delay_{hours}h": _ratio(seen(events.arr_delay) - earlier(events.arr_delay), count),
        f"{name}_gained_delay_{hours}h": _ratio(seen(gained) - earlier(gained), count),
    }


def past_delays(rows: pd.DataFrame, events: Events) -> dict[str, Floats]:
    """Share of arrivals later than 15 minutes in the last 28 days: on the route with this carrier, of this flight."""
    late = (events.arr_delay > LATE_MINUTES).astype("int64")
    window = 28 * 24 * 60
    result: dict[str, Floats] = {}
    for name, by in {"route": ["carrier", "origin", "dest"], "flight": ["carrier", "flight", "dest"]}.items():
        group = _codes(rows, by)
        seen = _before(group, events.arrived, events.scheduled)
        earlier = _before(group, events.arrived, events.scheduled - window)
        result[f"{name}_late_share_28d"] = _ratio(seen(late) - earlier(late), seen() - earlier())
    return result


def same_aircraft(rows: pd.DataFrame, events: Events) -> dict[str, Floats]:
    """What was known of the aircraft's previous departure from New York; null without tail number or predecessor.

    `tail_slack_minutes` is the time left for turning round and flying back: from the landing (as far as known, else
    as delayed as the departure) to this departure, less one flight time. Null while the previous flight hasn't
    departed: the aircraft is here.
    """
    import numpy as np

    previous = rows.index.to_series().groupby(rows["tailnum"]).shift(1)
    known = previous.notna().to_numpy()
    before = previous.fillna(0).to_numpy(np.int64)
    now, scheduled = events.scheduled, events.scheduled[before]
    dep_delay, arr_delay = events.dep_delay[before], events.arr_delay[before]
    departed, arrived = known & (events.departed[before] < now), known & (events.arrived[before] < now)
    landing = events.scheduled_arrival[before] + np.where(arrived, arr_delay, dep_delay)
    slack = now - landing - (events.scheduled_arrival[before] - scheduled)
    return {
        "tail_hours_since_previous": np.where(known, np.minimum((now - scheduled) / 60, MAX_HOURS_BACK), np.nan),
        "tail_previous_waiting": np.where(known, (~departed).astype(float), np.nan),
        "tail_previous_dep_delay": np.where(departed, dep_delay, np.nan),
        "tail_previous_arr_delay": np.where(arrived, arr_delay, np.nan),
        "tail_slack_minutes": np.where(departed, np.clip(slack, *SLACK_RANGE_MINUTES), np.nan),
    }


def _before(group: Ints, instant: Ints, at: Ints) -> Callable[..., Ints]:
    """A function that counts, for each row, its group's events strictly before `at`, or sums a value over them.

    Integers throughout: differences of running totals are exact, whatever happened elsewhere or later.
    """
    import numpy as np

    key = group * SPAN + instant
    order = np.argsort(key, kind="stable")
    first = np.searchsorted(key[order], group * SPAN)
    position = np.searchsorted(key[order], group * SPAN + at)

    def total(values: Ints | None = None) -> Ints:
        if values is None:
            return position - first
        running = np.concatenate([[0], np.cumsum(values[order])])
        return running[position] - running[first]

    return total


def _ratio(total: Ints, count: Ints) -> Floats:
    """`total / count`, null where nothing was counted."""
    import numpy as np

    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _codes(rows: pd.DataFrame, by: list[str]) -> Ints:
    """A number for each distinct combination of the columns `by`. Shape `(N,)`."""
    import numpy as np

    return np.asarray(rows.groupby(by, sort=True).ngroup(), dtype=np.int64)


def minutes(instants: pd.Series) -> Ints:
    """UTC timestamps as whole minutes since 1970."""
    import numpy as np

    return np.asarray(instants.dt.as_unit("s").astype("int64"), dtype=np.int64) // 60
