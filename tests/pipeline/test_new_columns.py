"""What `trainworthy new` finds out about a table: types, roles, label, key and windows, or what is wrong with it."""

import shlex

import numpy as np
import pandas as pd
import pytest
from shop_rows import found, roles, table, told

from trainworthy.lifecycle.data.split import split_by_time
from trainworthy.lifecycle.leakage.before_split import power_before_split
from trainworthy.lifecycle.spec.split import TimeSplit
from trainworthy.lifecycle.tasks.kind import COPY_OF_CLASSES
from trainworthy.pipeline.scaffold.windows import updates


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"bought": "yes"}, "'bought' has one value only, 'yes' in 1,200 rows"),
        ({"bought": None}, "'bought' is empty in all 1,200 rows"),
        ({"bought": range(1200)}, "1,200 different values, one for each row, without a gap"),
        ({"at": "soon"}, "no column of times"),
        ({"at": range(1200)}, "no column of times"),
        ({"at": None}, "is empty in 1,200 rows"),
        ({"x": float("inf")}, "infinite"),
    ],
)
def test_new_column_that_cannot_be_used_is_told(tmp_path, change, text):
    assert text in told(table().assign(**change), tmp_path)


@pytest.mark.parametrize(
    ("share", "words"), [(1.0, "in 100.0% of the rows"), (0.0005, "in less than 0.1% of the rows")]
)
def test_new_time_after_the_prediction_time_is_no_input_and_is_named_with_its_share(tmp_path, share, words):
    rows = table()
    later = np.arange(len(rows)) < max(1, share * len(rows))
    ended = rows["at"] + pd.to_timedelta(np.where(later, 40, -40) + np.arange(len(rows)) * 7 % 30, unit="D")
    result, problems = found(rows.assign(ended=ended), tmp_path)
    assert problems == []
    assert result is not None
    (column,) = [column for column in result.columns if column.name == "ended"]
    assert column.role == "other"
    assert words in column.remark
    assert "lies after 'at'" in column.remark


@pytest.mark.parametrize(
    ("numbers", "role"),
    [
        (np.arange(5000, 6200), "key"),
        (np.flatnonzero(np.random.default_rng(0).random(2000) < 0.65)[:1200], "key"),
        # What is measured comes in any order, some of it repeats, or lies far apart.
        (np.random.default_rng(0).permutation(2000)[:1200], "feature"),
        (np.random.default_rng(0).permutation(np.r_[0, range(1199)]), "feature"),
        (np.random.default_rng(0).permutation(np.arange(1200) * 3), "feature"),
        (np.random.default_rng(0).permutation(np.arange(1200) + 0.5), "feature"),
    ],
)
def test_new_numbers_of_the_rows_in_their_order_are_its_key_whatever_they_are_called(tmp_path, numbers, role):
    assert roles(table().drop(columns="visit_id").assign(编号=numbers), tmp_path)["编号"] == role


def test_new_second_number_of_the_rows_is_no_input(tmp_path):
    found_roles = roles(table().assign(nr=range(1200)), tmp_path)
    assert (found_roles["visit_id"], found_roles["nr"]) == ("key", "entity")


@pytest.mark.parametrize("form", ["%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%Y/%m/%d %H:%M:%S"])
@pytest.mark.parametrize("asked", [True, False])
def test_new_times_that_begin_with_the_year_are_read_in_their_form(tmp_path, form, asked):
    rows = table()
    named = {"time_format": form} if asked else {}
    result, problems = found(rows.assign(at=rows["at"].dt.strftime(form)), tmp_path, suffix=".csv", **named)
    assert problems == []
    assert result is not None
    assert result.kinds["at"] == "time"
    assert f"'at': {form!r}".replace("'", '"') in result.dataset_text.replace("'", '"')
    assert result.rows["at"].dt.normalize().tolist() == rows["at"].dt.normalize().tolist()


@pytest.mark.parametrize(
    ("form", "day", "said"),
    [
        ("%y%m%d", lambda at: at, "--time day --time-format %y%m%d splits by it"),
        ("%Y%m%d", lambda at: at, "--time day --time-format %Y%m%d splits by it"),
        # Codes of as many digits, of which one in ten is no day.
        ("%Y%m%d", lambda at: at.where(np.arange(len(at)) % 10 > 0), 'write "text" for it'),
    ],
)
def test_new_whole_numbers_that_are_days_are_told_with_the_options_that_split_by_them(tmp_path, form, day, said):
    rows = table()
    days = day(rows["at"]).dt.strftime(form).fillna("20241399").astype("int64")
    result, _ = found(rows.drop(columns="at").assign(day=days), tmp_path, suffix=".csv", time=None)
    assert result is not None
    (line,) = [line for line in result.observations if line.startswith("'day'")]
    assert said in line


def test_new_time_before_the_prediction_time_may_be_an_input(tmp_path):
    rows = table()
    joined = rows["at"] - pd.to_timedelta(np.random.default_rng(3).integers(1, 900, len(rows)), unit="D")
    assert roles(rows.assign(joined=joined), tmp_path)["joined"] == "feature"


def test_new_nested_column_is_told(tmp_path):
    assert "holds values of type" in told(table().assign(x=[[1, 2]] * 1200), tmp_path)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (table(days=20, a_day=60), "span too few days"),
        (table(days=60, a_day=10), "too few rows"),
        (table().sort_values("bought").assign(at=table()["at"].to_numpy()), "one class only"),
    ],
)
def test_new_rows_that_cannot_be_split_are_told(tmp_path, rows, text):
    assert text in told(rows, tmp_path)


def test_new_key_that_repeats_or_is_empty_is_told(tmp_path):
    assert "rows share theirs" in told(table(), tmp_path, keys=("place",))


def test_new_measured_number_is_no_part_of_a_key(tmp_path):
    # Two rows share a time, and no two of those a number: it is an input all the same.
    rows = table()[["at", "bought"]].assign(x=np.random.default_rng(0).normal(size=1200).round(6))
    rows["at"] = rows["at"].where(rows.index != 1, rows["at"].iloc[0])
    result, problems = found(rows, tmp_path)
    assert problems == []
    assert result is not None
    assert result.key == ("row",)
    assert {one.name: one.role for one in result.columns}["x"] == "feature"


@pytest.mark.parametrize(
    ("customers", "for_new"),
    [
        # Every other row is of one of forty customers, the others each of a new one.
        (
            lambda place: place % 40 if place % 2 else place + 40,
            "write split.by: time_and_group and split.group: customer id in ",
        ),
        (lambda place: place % 40, "begin anew with --group 'customer id' in place of --time"),
        (lambda place: place // 24, None),
    ],
    ids=["some new", "all known", "all new"],
)
def test_new_says_how_many_entities_of_later_rows_are_in_training_too(tmp_path, customers, for_new):
    rows = table()
    result, problems = found(rows.assign(**{"customer id": [customers(place) for place in range(len(rows))]}), tmp_path)
    assert problems == []
    assert result is not None
    told = [line for line in result.observations if "in training too" in line]
    if for_new is None:
        assert told == []
        return
    assert isinstance(result.windows.split, TimeSplit)
    split = split_by_time(result.rows, result.windows.split)
    later, known = (set(split[name]["customer id"]) for name in ("benchmark", "training"))
    both = f"{len(later & known)} of the {len(later)} values of 'customer id' in the benchmark are in training too"
    (line,) = told
    assert line.startswith(f"{both}: right if the model serves known ones; for new ones {for_new}")


def test_new_says_nothing_of_known_entities_where_the_split_keeps_them_apart(tmp_path):
    rows = table().assign(customer_id=lambda r: r.index % 300)
    result, problems = found(rows, tmp_path, time=None, group="customer_id")
    assert problems == []
    assert result is not None
    assert not [line for line in result.observations if "in training too" in line]


def test_new_rows_without_a_key_are_numbered(tmp_path):
    rows = pd.concat([table(), table()])[["at", "x", "place", "bought"]]
    result, problems = found(rows, tmp_path)
    assert problems == []
    assert result is not None
    assert result.key == ("row",)
    assert result.rows["row"].tolist() == list(range(len(rows)))


@pytest.mark.parametrize(
    ("values", "positive", "table_of_labels"),
    [
        (["yes", "no"], None, {"no": 0, "yes": 1}),
        ([1, 0], None, {0: 0, 1: 1}),
        ([1.0, 0.0], None, {0.0: 0, 1.0: 1}),
        ([True, False], None, {False: 0, True: 1}),
        (["a", "b"], "b", {"a": 0, "b": 1}),
        ([1, 2], "2", {1: 0, 2: 1}),
        (["Yes", "No"], "NO", {"No": 1, "Yes": 0}),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_new_target_of_two_values_of_any_type_becomes_0_and_1(tmp_path, values, positive, table_of_labels, suffix):
    rows = table()
    first = rows["bought"] == "yes"
    rows["bought"] = np.where(first, values[0], values[1])
    result, problems = found(rows, tmp_path, positive=positive, suffix=suffix)
    assert problems == []
    assert result is not None
    assert result.target.table == table_of_labels
    as_label = first if list(table_of_labels.values())[sorted(values).index(values[0])] else ~first
    assert result.rows["bought"].tolist() == as_label.astype(int).tolist()


def test_new_target_whose_positive_value_is_not_obvious_or_wrong_is_told(tmp_path):
    rows = table().assign(bought=lambda r: r["bought"].map({"yes": "left", "no": "stayed"}))
    assert "--positive left or --positive stayed" in told(rows, tmp_path)
    (tmp_path / "work").rmdir()
    assert "did you mean 'left'?" in told(rows, tmp_path, positive="lef")


@pytest.mark.parametrize(
    ("column", "change", "option", "values"),
    [
        ("bought", {"yes": "cancelled early", "no": 'it\'s "kept"'}, "--positive", ["cancelled early", 'it\'s "kept"']),
        ("at", None, "--time", ["seen at"]),
        ("at", "%d/%m/%Y %H:%M", "--time-format", ["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"]),
    ],
)
def test_new_what_a_fix_says_to_write_can_be_pasted(tmp_path, column, change, option, values):
    rows, asked = table(), {}
    if option == "--time":
        rows, asked = rows.rename(columns={column: values[0]}), {"time": None}
    elif option == "--positive":
        rows[column] = rows[column].map(change)
    else:
        rows = rows[rows[column].dt.day <= 12].assign(at=lambda r: r["at"].dt.strftime(change))
    words = shlex.split(told(rows, tmp_path, suffix=".csv", **asked).rpartition("fix: ")[2])
    assert [words[place + 1].rstrip(";") for place, word in enumerate(words) if word == option] == values


def test_new_target_with_nulls_leaves_rows_without_a_label(tmp_path):
    rows = table()
    rows.loc[::7, "bought"] = None
    result, _ = found(rows, tmp_path, suffix=".csv")
    assert result is not None
    assert result.rows["bought"].isna().tolist() == (rows.index % 7 == 0).tolist()


def test_new_imbalanced_target_is_taken_if_each_split_has_both(tmp_path):
    rows = table().assign(bought=lambda r: np.where(r.index % 40 == 3, "yes", "no"))
    assert roles(rows, tmp_path)["x"] == "feature"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_new_columns_of_each_kind_get_their_type_and_role(tmp_path, suffix):
    rows = table()
    n, generator = len(rows), np.random.default_rng(3)
    rows["same"], rows["empty"] = "x", None
    rows["counts"] = pd.array(generator.integers(0, 9, n), dtype="Int64")
    rows.loc[::5, "counts"] = None
    rows["flag"] = generator.random(n) < 0.5
    rows["maybe"] = pd.array(generator.random(n) < 0.5, dtype="boolean")
    rows.loc[::9, "maybe"] = None
    rows["word"] = [f"w{number}" for number in generator.integers(0, 60, n)]
    rows["name"] = [f"n{number}" for number in range(n)]
    rows["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 9999, n), unit="h")
    rows["postcode"] = [f"0{number}" for number in generator.integers(100, 120, n)]
    rows["clock"] = np.arange(n) * 3 + generator.integers(0, 3, n)
    rows["account_id"] = generator.integers(0, 50, n)
    result, problems = found(rows, tmp_path, suffix=suffix)
    assert problems == []
    assert result is not None
    expected = {
        "same": ("text", "other"), "empty": ("number", "other"), "counts": ("number", "feature"),
        "flag": ("boolean", "feature"), "maybe": ("boolean", "feature"), "word": ("text", "feature"),
        "name": ("text", "entity"), "since": ("time", "feature"), "postcode": ("text", "feature"),
        "clock": ("integer", "other"), "account_id": ("integer", "entity"), "visit_id": ("integer", "key"),
    }  # fmt: skip
    found_roles = {column.name: column.role for column in result.columns}
    assert {name: (result.kinds[name], found_roles[name]) for name in expected} == expected


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_new_time_with_and_without_a_zone_is_read(tmp_path, zone, suffix):
    rows = table().assign(at=lambda r: r["at"].dt.tz_localize(zone))
    result, problems = found(rows, tmp_path, suffix=suffix)
    assert problems == []
    assert result is not None
    assert result.kinds["at"] == ("instant" if zone else "time")
    assert result.rows["day"].dt.tz is None


@pytest.mark.parametrize("copy", ["text", "number", "noisy", "nulls"])
def test_new_column_that_tells_the_target_all_alone_is_no_input_and_is_told(tmp_path, copy):
    rows = table()
    yes = rows["bought"] == "yes"
    rows["leak"] = {
        "text": np.where(yes, "a", "b"),
        "number": yes * 2.5,
        "noisy": yes * 3 + np.random.default_rng(0).normal(size=len(rows)),
        "nulls": np.where(yes, 1.0, np.nan) * np.random.default_rng(0).normal(size=len(rows)),
    }[copy]
    result, _ = found(rows, tmp_path)
    assert result is not None
    (leak,) = [column for column in result.columns if column.name == "leak"]
    assert (leak.role, "alone it predicts the target almost perfectly" in leak.remark) == ("other", True)
    assert {column.name: column.role for column in result.columns}["x"] == "feature"


@pytest.mark.parametrize(("column", "role"), [("flipped", "other"), ("set_of_codes", "other"), ("honest", "feature")])
def test_new_input_is_none_that_the_first_run_would_stop_at(tmp_path, column, role):
    rows, random = table(), np.random.default_rng(0)
    yes = (rows["bought"] == "yes").to_numpy()
    flipped = yes ^ (random.random(len(rows)) < 0.06)
    rows["leak"] = {
        "flipped": flipped * 1.0,
        # Codes that no order tells: even ones stand for the label.
        "set_of_codes": 2 * random.integers(0, 9, len(rows)) + flipped,
        # An AUC of 0.95, as the first has it.
        "honest": random.normal(size=len(rows)) + 2.3 * yes,
    }[column]
    result, _ = found(rows, tmp_path)
    assert result is not None
    (leak,) = [drafted for drafted in result.columns if drafted.name == "leak"]
    assert (leak.role, "one set of its values decides the target" in leak.remark) == (role, role == "other")


def test_new_input_that_is_true_of_whom_rows_are_about_is_one_where_they_are_split_by_it():
    random, patients = np.random.default_rng(0), np.repeat(np.arange(200), 6)
    ill = pd.Series((random.random(200) < 0.4)[patients].astype("int64"), name="ill")
    height = pd.Series(random.normal(size=200)[patients], name="height")
    alone, by_patient = (power_before_split(height, [ill], COPY_OF_CLASSES, groups)
                         for groups in (None, pd.Series(patients)))  # fmt: skip
    assert alone is not None
    assert by_patient is not None
    # A split by chance has each patient on both sides, where the height names the patient.
    assert (alone.decides, by_patient.decides) == (True, False)


def test_new_numbers_that_no_integer_holds_are_floats(tmp_path):
    rows = table().assign(
        x=lambda r: np.uint64(2**63) + r.index.to_numpy(dtype="uint64") * np.uint64(7919) % np.uint64(97)
    )
    result, _ = found(rows, tmp_path)
    assert result is not None
    assert result.kinds["x"] == "number"
    assert (result.rows["x"] > 0).all()


@pytest.mark.parametrize(
    ("training", "pilot", "drawn"),
    [(1095, 0.5, (32, 18)), (600, 0.5, (32, 34)), (20_000, 0.15, (128, 14)), (1_000_000, 0.1, (1024, 4))],
)
def test_new_batch_and_epochs_give_the_pilot_enough_updates(training, pilot, drawn):
    batch_size, epochs = updates(training, pilot)
    assert (batch_size, epochs) == drawn
    assert epochs * (int(training * pilot) // batch_size) >= 300
