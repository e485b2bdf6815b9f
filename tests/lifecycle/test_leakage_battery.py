"""Each planted leak of the benchmark is found by its family, and no healthy odd table raises an alarm."""

import math
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

from benchmarks import leakage as tables
from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.leakage.battery import leakage_findings
from trainworthy.lifecycle.leakage.binning import LabelledRows, cells_of
from trainworthy.lifecycle.leakage.duplicates import duplicates
from trainworthy.lifecycle.leakage.entities import entity_overlap
from trainworthy.lifecycle.leakage.formulas import formulas
from trainworthy.lifecycle.leakage.label_window import label_window
from trainworthy.lifecycle.leakage.separability import Power, power
from trainworthy.lifecycle.leakage.single_feature import _order_words, _suspicion
from trainworthy.lifecycle.protocol.leak import Leak, leakage_check, suspicions
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.probabilities import auc_error

SEED = 5


def findings(rows: pd.DataFrame, folder, **changes) -> dict[str, Leak]:
    """The last finding of each family; `changes` are columns of the contract with other values."""
    contract = tables.contract_of(rows)
    columns = tuple(column.model_copy(update=changes.get(column.name, {})) for column in contract.columns)
    changed = contract.model_copy(update={"columns": columns})
    return {one.family: one for one in leakage_findings(tables.written(rows, folder), changed, tables.SPLIT)}


@pytest.mark.parametrize("name", tables.LEAKS)
def test_leakage_planted_leak_is_found_by_its_family(name):
    found = tables.alarms(tables.table(SEED, tables.LEAKS[name]), tables.FAMILIES[name])
    assert found
    assert all(finding.evidence and finding.fix for finding in found)


@pytest.mark.parametrize("name", tables.HEALTHY)
def test_leakage_healthy_odd_table_raises_no_alarm(name):
    assert tables.alarms(tables.table(SEED, tables.HEALTHY[name])) == []


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.95])
def test_leakage_copy_with_flips_is_found_at_any_base_rate_and_an_honest_score_is_not(share):
    generator = np.random.default_rng(1)
    rows = tables.table(7, tables.as_it_is).assign(
        label=lambda made: (generator.random(len(made)) < share).astype("int8")
    )
    assert [one.columns for one in tables.alarms(tables.flipped(rows, generator))] == [("copy",)]
    assert tables.alarms(tables.strong(rows, generator)) == []


def suspected(rows: pd.DataFrame, folder, reviewed: bool | str) -> tuple[list[Leak], str]:
    """Findings of which nobody, or a person, has reviewed the features, and what the report reads of them."""
    features = [name for name in rows.columns if name not in ("row_id", "day", "label", "split")]
    folder.mkdir()
    contract = tables.contract_of(rows)
    columns = [
        one.model_copy(update={"reviewed": reviewed} if one.name in features else {}) for one in contract.columns
    ]
    changed = contract.model_copy(update={"columns": tuple(columns)})
    found = leakage_findings(tables.written(rows, folder), changed, tables.SPLIT)
    return found, " ".join(suspicions([leakage_check("leakage", found)]))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (pd.Series(np.arange(500)), True),
        (pd.Series(-np.arange(500.0)), True),
        (pd.Series(np.arange(500.0)).where(np.arange(500) % 7 > 0), True),
        (pd.Series(np.random.default_rng(0).permutation(500)), False),
        (pd.Series(["a", "b"] * 250), False),
        (pd.Series([1] * 500), False),
    ],
)
def test_leakage_column_that_goes_the_way_of_the_file_is_told_with_a_split_by_time(values, told):
    assert ("split by it" in _order_words(values)) == told


def of_auc(auc: float, error: float = 0.01) -> Power:
    return Power(0.4, 0.02, 0.4, auc, error, auc)


@pytest.mark.parametrize(
    ("late", "others", "suspicious"),
    [
        (of_auc(0.9), (0.6, 0.6), True),
        (of_auc(0.9), (0.6, 0.3, 0.5, 0.6), True),
        # Of two, one is always the stronger.
        (of_auc(0.7601), (0.7599,), False),
        (of_auc(0.9), (0.6,), False),
        (of_auc(0.9), (), False),
        # 0.6 and 0.6 together have 0.640, 0.7 and 0.7 have 0.771: what is nearer than three errors may be chance.
        (of_auc(0.8, 0.01), (0.7, 0.7), False),
        (of_auc(0.8, 0.009), (0.7, 0.7), True),
        (of_auc(0.9, math.inf), (0.6, 0.6), False),
        # Most of the way from chance to certainty.
        (of_auc(0.75), (0.5, 0.5), False),
        (of_auc(0.9), (0.6, math.nan), False),
        (of_auc(math.nan), (0.6, 0.6), False),
    ],
)  # fmt: skip
def test_leakage_suspicion_needs_two_others_and_more_than_chance(late, others, suspicious):
    told = _suspicion("late", {"late": late} | {f"x{place}": of_auc(auc) for place, auc in enumerate(others)})
    assert bool(told) == suspicious
    assert f"the other {len(others)} features" in told or not suspicious


def test_leakage_error_of_a_features_auc_is_that_of_its_held_rows():
    """Against the spread of 200 draws of the held rows; Hanley and McNeil's is of an exponential score."""
    generator, found = np.random.default_rng(4), []
    for _ in range(200):
        labels, held = (generator.integers(0, 2, rows) for rows in (2_000, 300))
        values = [pd.Series(some * 1.5 + generator.normal(size=len(some))) for some in (labels, held)]
        found.append(power(cells_of(*values), labels, held, np.ones(300, dtype=bool)))
    spread = float(np.std([one.auc for one in found]))
    assert 0.7 * spread < float(np.mean([one.auc_error for one in found])) < 1.4 * spread
    assert auc_error(0.5, 0, 300) == math.inf


def test_leakage_one_feature_that_beats_all_others_together_is_suspicious_and_decides_nothing(tmp_path):
    """A delay of departure has an AUC of about 0.9: no statistic tells it from an honest input."""
    generator = np.random.default_rng(2)
    rows = tables.table(SEED, tables.as_it_is)
    late = rows.assign(late=rows["label"] * 1.8 + generator.normal(size=len(rows)))
    plain, accepted, known = (suspected(late, tmp_path / str(how), how) for how in (False, "all at once", True))
    assert plain[1].startswith("late alone has AUC 0.8")
    assert plain[1] == accepted[1]
    # A person who reviewed it by itself has answered the question.
    assert known[1] == ""
    # The check passes all the same, and tells it.
    checks = [leakage_check("leakage", found) for found, _ in (plain, known)]
    assert [check.status for check in checks] == ["pass", "pass"]
    assert "suspicious, not shown to be a leak: late alone" in checks[0].evidence


def test_leakage_feature_beside_others_as_good_or_that_tells_little_is_not_suspicious(tmp_path):
    generator = np.random.default_rng(2)
    rows = tables.table(SEED, tables.as_it_is)
    several = rows.assign(**{f"f{n}": rows["label"] + generator.normal(size=len(rows)) for n in range(4)})
    weak = rows.drop(columns=["score"]).assign(weak=rows["label"] * 0.5 + generator.normal(size=len(rows)))
    assert suspected(several, tmp_path / "several", False)[1] == ""
    assert suspected(weak, tmp_path / "weak", False)[1] == ""


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        (lambda made: made["casual"] + made["registered"], "sum of casual and registered"),
        (lambda made: made["casual"] - made["registered"], "difference of casual and registered"),
        (lambda made: made["cases"] / made["people"], "ratio of people and cases"),
        (lambda made: made["cases"] * made["people"], "product of people and cases"),
    ],
)
def test_leakage_label_computed_from_two_numbers_is_suspicious_and_decides_nothing(tmp_path, formula, told):
    """Murders and inhabitants of a county, whose rate is predicted, and parts of a total: none tells it alone."""
    generator = np.random.default_rng(4)
    rows = tables.table(SEED, tables.as_it_is)
    rows = rows.assign(
        people=generator.lognormal(8, 1, len(rows)), cases=generator.lognormal(3, 1, len(rows)),
        casual=generator.gamma(2, 10, len(rows)), registered=generator.gamma(2, 10, len(rows)),
        spare=generator.normal(size=len(rows)),
    )  # fmt: skip
    rows.loc[::50, "people"] = 0
    rate = formula(rows).replace(np.inf, 0)
    rows["label"] = (rate > rate.median()).astype("int8")
    found, suspicions_told = suspected(rows, tmp_path / "made", False)
    assert f"the {told} decides the label: Youden's J" in suspicions_told
    assert leakage_check("leakage", found).status == "pass"
    assert suspected(rows, tmp_path / "known", True)[1] == ""


def test_leakage_label_that_two_numbers_only_lean_on_is_no_formula(tmp_path):
    """Two strong honest inputs: their product and ratio tell more than each, and do not decide."""
    generator = np.random.default_rng(4)
    rows = tables.table(SEED, tables.as_it_is)
    people, cases = (generator.lognormal(0, 1, len(rows)) for _ in range(2))
    chance = 1 / (1 + np.exp(-3 * (np.log(cases) - np.log(people))))
    rows = rows.assign(people=people, cases=cases, label=(generator.random(len(rows)) < chance).astype("int8"))
    assert "decides" not in suspected(rows, tmp_path / "made", False)[1]


def test_leakage_two_features_of_the_outcome_are_both_named():
    rows = tables.table(SEED, tables.flipped).assign(other=lambda made: made["copy"] * 17 + 3)
    assert {one.columns for one in tables.alarms(rows)} == {("copy",), ("other",)}


@pytest.mark.parametrize("plant", [*tables.LEAKS.values(), tables.as_it_is], ids=[*tables.LEAKS, "as_it_is"])
def test_leakage_labels_of_the_benchmark_decide_on_nothing_but_copies(plant, tmp_path):
    rows = tables.table(SEED, plant)
    found = []
    for name, changed in (("known", rows), ("turned", with_turned_benchmark(rows))):
        (tmp_path / name).mkdir()
        found.append(findings(changed, tmp_path / name))
    for family in found[0].keys() - {"duplicates", "near_duplicates"}:
        assert found[0][family] == found[1][family]


def with_turned_benchmark(rows: pd.DataFrame) -> pd.DataFrame:
    """The benchmark's labels all the other way round; it is the last tenth, or what `split` says."""
    last = np.arange(len(rows)) >= round(0.9 * len(rows))
    benchmark = rows["split"].to_numpy() == "benchmark" if "split" in rows else last
    return rows.assign(label=rows["label"].where(~benchmark, 1 - rows["label"]))


def test_duplicates_made_before_the_split_fail_where_the_split_is_random(tmp_path):
    rows = tables.table(SEED, tables.oversampled)
    cells = {name: cells_of(rows[name], rows[name]) for name in ("x", "score", "amount", "shop")}
    found = duplicates(
        tables.written(rows, tmp_path), cells, "label", None, BINARY.events(np.arange(2))[0].of_labels, by_time=False
    )
    assert {one.status for one in found} == {"fail"}


def sorted_rows_that_repeat(rows: int = 3000) -> pd.DataFrame:
    """Rows of few values among finer ones, written in the order of their values, and split by chance."""
    generator = np.random.default_rng(SEED)
    poor = np.sort(generator.integers(0, 60, rows))
    split = generator.choice(list(tables.SHARES), rows, p=list(tables.SHARES.values()))
    few = np.arange(rows) % 6 == 0
    return pd.DataFrame({
        "row_id": np.arange(rows), "day": pd.Timestamp("2024-01-01"), "split": split,
        "label": (poor >= 55).astype("int8"), "x": poor,
        "earned": np.where(few, 0.0, generator.normal(size=rows)),
        "owed": np.where(few, 0.0, generator.normal(size=rows)),
    })  # fmt: skip


def repeated_in(rows: pd.DataFrame, folder) -> set[str]:
    cells = {name: cells_of(rows[name], rows[name]) for name in ("x", "earned", "owed")}
    event = BINARY.events(np.arange(2))[0].of_labels
    found = duplicates(tables.written(rows, folder), cells, "label", None, event, by_time=False)
    return {one.status for one in found}


def test_duplicates_that_lie_side_by_side_in_a_sorted_file_are_nature_where_the_split_is_random(tmp_path):
    assert repeated_in(sorted_rows_that_repeat(), tmp_path) == {"pass"}


def test_duplicates_that_only_a_held_out_split_has_fail_in_a_sorted_file(tmp_path):
    rows = sorted_rows_that_repeat()
    benchmark = rows.index[rows["split"] == "benchmark"]
    copied = rows[rows["split"] == "training"].sample(len(benchmark) // 2, random_state=0)
    columns = ["label", "x", "earned", "owed"]
    rows.loc[benchmark[: len(copied)], columns] = copied[columns].to_numpy()
    assert repeated_in(rows.astype({"label": "int8"}), tmp_path) == {"fail"}


def test_leakage_columns_without_a_value_or_with_missing_times_are_measured(tmp_path):
    rows = tables.table(SEED, tables.as_it_is)
    some = np.arange(len(rows)) % 3 == 0
    odd = rows.assign(
        empty=np.nan, nothing=pd.Series([None] * len(rows), dtype=object), at=rows["day"].where(some),
        there=pd.Series(np.where(some, None, True), dtype=object), whole=pd.array(np.where(some, 1, 2), dtype="Int64"),
    )  # fmt: skip
    assert {one.status for one in findings(odd, tmp_path).values()} <= {"pass", "not_applicable"}


def test_leakage_few_rows_are_insufficient_and_do_not_stop(tmp_path):
    rows = tables.table(SEED, tables.flipped).head(60)
    check = leakage_check("leakage", list(findings(rows, tmp_path).values()))
    assert (check.status, check.stops) == ("insufficient", False)
    assert check.fix


def test_leakage_reviewed_feature_passes_with_its_reason(tmp_path):
    rows = tables.table(SEED, tables.flipped)
    reviewed = {"copy": {"decides_label": "the laboratory measures it before we are asked"}}
    finding = findings(rows, tmp_path, **reviewed)["single_feature"]
    assert finding.status == "pass"
    assert "laboratory" in finding.evidence


def test_leakage_evidence_names_no_value_of_a_row(tmp_path):
    told = [one.model_dump_json() for one in findings(tables.table(SEED, tables.coded), tmp_path).values()]
    assert not any(f"c{code:03}" in text for text in told for code in range(400))


def label_known_at(available_at: str | None, timeline: tuple[str, ...] = ()) -> Contract:
    column = Column(name="label", logical_type="boolean", role="target", available_at=available_at)
    return tables.contract_of(tables.table(1, tables.as_it_is).head()).model_copy(
        update={"columns": (column,), "timeline": timeline}
    )


@pytest.mark.parametrize(
    ("available_at", "embargo", "status"),
    [
        ("P1D", "1d", "pass"),
        ("PT30H", "1d", "fail"),
        ("PT30H", "36h", "pass"),
        ("P30D", "7d", "fail"),
        ("P7D", "7d", "pass"),
        (None, "1d", "not_applicable"),
        ("P30D", None, "not_applicable"),
    ],
)
def test_label_window_longer_than_the_embargo_fails(available_at, embargo, status):
    assert label_window(label_known_at(available_at), embargo).status == status


def test_label_window_of_a_name_in_the_timeline_says_that_it_has_no_length():
    finding = label_window(label_known_at("arrival", ("prediction", "arrival")), "1d")
    assert finding.status == "not_applicable"
    assert "duration" in finding.evidence


@pytest.fixture
def customers(tmp_path) -> SplitFiles:
    for place, name in enumerate(tables.SHARES):
        customers = [f"c{place}", f"c{place + 1}", None]
        pd.DataFrame({"customer": customers}).to_parquet(tmp_path / f"{name}.parquet")
    return SplitFiles(tmp_path)


def test_entity_overlap_is_told_and_fails_only_where_the_split_keeps_it_apart(customers):
    (told,) = entity_overlap(customers, ["customer"])
    assert (told.status, told.observed) == ("pass", 0.5)
    (by_chance,) = entity_overlap(customers, ["customer"], by_chance=True)
    assert (by_chance.status, by_chance.observed, "group: customer" in by_chance.fix) == ("warning", 0.5, True)
    (broken,) = entity_overlap(customers, ["customer"], group_columns=["customer"])
    assert broken.status == "fail"
    assert broken.columns == ("customer",)


def test_leakage_check_of_a_warning_is_told_and_does_not_stop():
    warning = Leak(taxon="L3.1", family="split_gap", status="warning", evidence="a gap", fix="split by time")
    check = leakage_check("leakage_in_training", [warning])
    assert (check.status, check.severity, check.stops) == ("fail", "warning", False)


def test_leakage_check_of_nothing_is_not_passed():
    assert leakage_check("leakage", []).status == "insufficient"


def test_leakage_sample_of_one_label_alone_is_told_and_has_not_passed():
    rows = tables.table(SEED, tables.as_it_is).assign(one=1.5, other=2.5)
    contract = tables.contract_of(rows)
    alone = SimpleNamespace(training=rows, training_labels=np.zeros(len(rows), dtype=np.int64))
    (found,) = formulas(cast("LabelledRows", alone), contract, ("one", "other"))
    assert (found.status, found.family) == ("not_applicable", "formula")
    assert "holds one label alone" in found.evidence
