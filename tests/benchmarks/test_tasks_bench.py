"""What benchmarks/tasks.py plants: rows that are wrong as a case says, and changes that find their place."""

import re

import numpy as np
import pandas as pd
import pytest

from benchmarks import tasks
from benchmarks.tasks_cases import HEALTHY, HOSTS, PLANTED
from benchmarks.tasks_pictures import (
    DISC,
    GROUND,
    SQUARE,
    each,
    exchanged,
    fewer_with,
    ground_alike,
    held_out_arrays,
    in_second_half_of_training,
    mask_in_blue,
    masks_of,
    opened,
    shapes,
    shapes_moved,
    stored,
)
from benchmarks.tasks_rows import (
    Rows,
    copied,
    digits_moved,
    fewer_names,
    flats,
    flats_moved,
    flights_moved,
    held_out,
    in_second_half,
    of_next_row,
    rarer,
    renamed,
    shuffled,
    sky,
    sky_moved,
    twice,
    without,
)
from benchmarks.tasks_texts import (
    MOST_OF_TOPIC,
    SHORTEST,
    backwards,
    ciphered,
    cut,
    headed,
    mixed,
    overlapping,
    spaced,
    texts,
    topics,
    topics_moved,
)
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.resources.settings import PRODUCT

TABLE = pd.DataFrame({"picture": range(10), "sheet": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "digit": range(10)})
ROWS = Rows(TABLE, {"training": TABLE.index[:6], "validation": TABLE.index[6:8], "benchmark": TABLE.index[8:]})


def mutated(mutation, rows=ROWS):
    return mutation(rows, np.random.default_rng(0))


def stacked(column):
    return np.stack(list(column))


def test_each_kind_has_mistakes_of_rows_and_code_and_healthy_variants():
    for name in HOSTS:
        planted = [case for case in PLANTED if case.host == name]
        assert len({case.name for case in planted}) == len(planted) >= 8
        assert sum(case.rows is not None for case in planted) >= 5
        assert sum(bool(case.changes) for case in planted) >= 5
        assert len([case for case in HEALTHY if case.host == name]) >= 5
    assert all(re.compile(case.cause).pattern for case in PLANTED)
    assert not any(case.cause for case in HEALTHY)


@pytest.mark.parametrize("name", [name for name, host in HOSTS.items() if host.made is None or host.files])
def test_every_change_finds_its_place_in_the_files_of_its_host(name):
    host = HOSTS[name]
    folder = host.files or PRODUCT / "use_cases" / name
    for case in (case for case in (*PLANTED, *HEALTHY) if case.host == name):
        texts = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
        for file, old, new in (*host.changes, *case.changes):
            assert old in texts[file], (case.name, old)
            texts[file] = texts[file].replace(old, new)


def test_labels_are_moved_to_other_rows():
    assert mutated(of_next_row("digit"))["digit"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    drawn = mutated(shuffled("digit"))["digit"]
    assert sorted(drawn) == list(range(10))
    assert drawn.tolist() != list(range(10))


def test_labels_change_in_the_second_half_or_outside_of_training():
    assert mutated(in_second_half("digit", lambda old: -old))["digit"].tolist() == [0, 1, 2, 3, 4, -5, -6, -7, -8, -9]
    assert mutated(held_out("digit", lambda old: -old))["digit"].tolist() == [0, 1, 2, 3, 4, 5, -6, -7, -8, -9]


def test_copies_of_held_out_rows_stand_in_training_under_keys_of_their_own():
    rows = Rows(
        pd.concat([TABLE] * 5, ignore_index=True), {"training": pd.RangeIndex(40), "benchmark": pd.RangeIndex(40, 50)}
    )
    found = mutated(copied("benchmark", digits_moved), rows)
    (old, new), copies = (found["picture"] < 100_000, found["picture"] >= 100_000), found[found["picture"] >= 100_000]
    assert (old.sum(), new.sum()) == (50, 4)
    assert set(copies["sheet"]) <= set(rows.frame.loc[:39, "sheet"])
    assert set(copies["digit"]) <= set(rows.frame.loc[40:, "digit"])
    assert mutated(twice(digits_moved))["digit"].tolist() == [*range(10), *range(10)]


def test_copied_flats_and_flights_are_dated_within_training():
    table = flats().assign(day=lambda rows: rows["signed"].dt.normalize())
    rows = Rows(table, {"training": table.index[:3000], "benchmark": table.index[5000:]})
    copies = mutated(copied("benchmark", flats_moved), rows).iloc[len(table) :]
    assert copies["signed"].max() <= table["signed"][2999]
    assert (copies["day"] == copies["signed"].dt.normalize()).all()
    dates = pd.Series(pd.to_datetime(["2013-01-05", "2013-01-06", "2013-04-20", "2013-04-21"]))
    hours = dates.dt.tz_localize("America/New_York").dt.tz_convert("UTC") + pd.Timedelta(hours=9)
    flights = pd.DataFrame({"date": dates, "time_hour": hours, "sched_dep": hours, "year": 2013, "flight": 1})
    flights = flights.assign(month=dates.dt.month, day=dates.dt.day, day_of_week=dates.dt.day_of_week)
    moved = flights_moved(flights[2:].copy(), flights[:2], np.random.default_rng(0))
    assert set(moved["date"]) <= set(dates[:2])
    # In April New York's clock is an hour ahead: the local hour stays.
    assert moved["time_hour"].dt.tz_convert("America/New_York").dt.hour.tolist() == [9, 9]


def test_a_rare_class_is_thinned_and_no_other():
    digits = Rows(pd.DataFrame({"digit": [8] * 1000 + [3] * 1000}), {})
    counts = mutated(rarer("digit", 8, 0.2), digits)["digit"].value_counts()
    assert counts[3] == 1000
    assert 150 < counts[8] < 250


def test_texts_of_labels_lose_or_exchange_one_name():
    texts = pd.DataFrame({"sky": ["rain|wind", "wind", "", "rain"] * 500})
    assert without("rain")(texts["sky"]).tolist()[:4] == ["wind", "wind", "", ""]
    assert renamed({"rain": "wind", "wind": "rain"})(texts["sky"]).tolist()[:4] == ["wind|rain", "rain", "", "wind"]
    fewer = fewer_names("rain", 0.3)(texts)
    assert fewer.str.contains("wind").sum() == 1000
    assert 250 < fewer.str.contains("rain").sum() < 350


def test_hours_know_their_own_weather_and_that_of_three_hours_later():
    table = sky()
    assert len(table) > 2800
    assert table["moment"].is_unique
    # Of one day the hour at hand shows what was named three hours before.
    pairs = (table["hour"].shift(-1) - table["hour"] == 3) & (table["date"].shift(-1) == table["date"])
    windy = table["sky"].str.contains("wind")
    assert (windy[pairs] == (table["wind_speed"].shift(-1) > 15)[pairs]).all()
    copies = sky_moved(table[2000:2100].copy(), table[:1000], np.random.default_rng(0))
    assert set(copies["date"]) <= set(table["date"][:1000])
    assert not set(copies["moment"]) & set(table["moment"])


@pytest.fixture(scope="module")
def pictures() -> Rows:
    table = shapes()
    return Rows(table, {"training": table.index[:300], "benchmark": table.index[300:]})


def test_pictures_are_stored_and_opened_as_they_were(pictures, tmp_path):
    stored(pictures.frame[:9], tmp_path).to_parquet(tmp_path / "part-0001.parquet")
    found = opened(tmp_path)
    assert found["name"].tolist() == pictures.frame["name"].tolist()[:9]
    for column in ("picture", "mask"):
        assert np.array_equal(stacked(found[column]), stacked(pictures.frame[column][:9]))


def test_masks_are_exchanged_turned_or_given_to_other_pictures(pictures):
    before = stacked(pictures.frame["mask"])
    assert set(np.unique(before)) == {GROUND, SQUARE, DISC}
    assert np.array_equal(stacked(mutated(each("mask", np.transpose), pictures)["mask"]), before.transpose(0, 2, 1))
    turned = np.array([GROUND, DISC, SQUARE])[before]
    late, held_out_ones = in_second_half_of_training("mask", exchanged), held_out_arrays("mask", exchanged)
    for mutation, first, last in ((late, 150, 300), (held_out_ones, 300, len(before))):
        found = stacked(mutated(mutation, pictures)["mask"])
        assert np.array_equal(found[first:last], turned[first:last])
        assert np.array_equal(np.delete(found, slice(first, last), 0), np.delete(before, slice(first, last), 0))
    next_ones = mutated(masks_of(lambda rows, _: np.roll(np.arange(len(rows.frame)), -1)), pictures)["mask"]
    assert np.array_equal(stacked(next_ones)[:-1], before[1:])


def test_blue_tells_the_mask_and_copies_of_pictures_lie_on_sheets_of_training(pictures):
    blue = stacked(mutated(mask_in_blue, pictures)["picture"])[..., 2]
    assert np.array_equal(blue // 100, stacked(pictures.frame["mask"]))
    copies = shapes_moved(pictures.frame[400:].copy(), pictures.frame[:300], np.random.default_rng(0))
    assert set(copies["prefix"]) <= set(pictures.frame["prefix"][:300])
    assert not set(copies["name"]) & set(pictures.frame["name"])


def test_a_rare_shape_is_thinned_and_a_ground_is_of_one_colour(pictures):
    def with_disc(frame: pd.DataFrame) -> np.ndarray:
        return np.array([(mask == DISC).any() for mask in frame["mask"]])

    before, after = with_disc(pictures.frame), with_disc(mutated(fewer_with(DISC, 0.4), pictures))
    assert (~after).sum() == (~before).sum()
    assert 0.3 < after.sum() / before.sum() < 0.5
    grounds = stacked(mutated(ground_alike, pictures)["picture"])[stacked(pictures.frame["mask"]) == GROUND]
    assert np.unique(grounds).tolist() == [110]


@pytest.fixture(scope="module")
def sentences() -> Rows:
    table = topics()
    return Rows(table, {"training": table.index[:1000], "benchmark": table.index[1000:]})


def test_sentences_of_the_help_are_there_once_and_under_many_topics(sentences):
    frame = sentences.frame
    assert len(frame) > 1000
    assert frame["topic"].nunique() > 50
    assert frame["topic"].value_counts().max() <= MOST_OF_TOPIC
    assert frame["text"].is_unique
    assert min(len(text.encode()) for text in frame["text"]) >= SHORTEST


def test_texts_change_in_the_splits_that_are_named_or_in_all(sentences):
    before = sentences.frame["text"].tolist()
    found = mutated(texts(mixed, "training"), sentences)["text"].tolist()
    assert [sorted(text) for text in found] == [sorted(text) for text in before]
    assert found[:1000] != before[:1000]
    assert found[1000:] == before[1000:]
    everywhere = mutated(texts(backwards), sentences)["text"]
    assert [text[::-1] for text in everywhere] == before
    short = mutated(texts(cut(16, 0.3)), sentences)["text"].str.len() == 16
    assert 0.25 < short.mean() < 0.35
    random = np.random.default_rng(0)
    assert (ciphered("a b~é", random), headed("> ")("a", random), spaced("a b", random)) == (
        "n-o,é", "> a", "a     b",
    )  # fmt: skip


def test_windows_overlap_and_copies_of_texts_stand_in_topics_of_training(sentences):
    windows = mutated(overlapping, sentences)
    assert len(windows) == len(sentences.frame)
    assert windows["sentence"].is_unique
    assert windows["text"].str.len().max() == 64
    halves = windows["text"].str[32:]
    assert (windows["text"].shift(-1).str[:32] == halves)[halves.str.len() == 32].mean() > 0.5
    copies = topics_moved(sentences.frame[1500:].copy(), sentences.frame[:1000], np.random.default_rng(0))
    assert set(copies["topic"]) <= set(sentences.frame["topic"][:1000])
    assert not set(copies["sentence"]) & set(sentences.frame["sentence"])


def test_a_mistake_is_found_by_what_stops_and_a_warning_is_counted_apart(capsys):
    case = next(case for case in PLANTED if case.name == "labels shuffled")
    stops = CheckResult(name="learned", status="fail", evidence="no signal", fix="look for labels of other rows")
    warns = stops.model_copy(update={"severity": "warning"})
    seen = tasks.told(case, tasks.Ended(False, (stops,)), 1, tasks.Counts())
    seen = tasks.told(case, tasks.Ended(True, (), (warns,)), 1, seen)
    seen = tasks.told(case, tasks.Ended(False, (stops.model_copy(update={"fix": "a lower rate"}),)), 1, seen)
    seen = tasks.told(HEALTHY[0], tasks.Ended(False), 600, seen)
    assert seen == tasks.Counts(planted=3, found=2, right=1, warned=1, healthy=1, stopped=1)
    lines = capsys.readouterr().out.splitlines()
    words = ("right cause", "a warning", "other cause", "STOPPED ended")
    assert [[word for word in words if word in line] for line in lines] == [[word] for word in words]
    found = {"missed_share": 1 / 3, "wrong_cause_share": 2 / 3, "healthy_stopped": 1.0}
    assert tasks.shares(seen) == pytest.approx(found)
    assert tasks.shares(tasks.Counts(healthy=2)) == {"healthy_stopped": 0.0}
