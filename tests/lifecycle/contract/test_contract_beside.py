"""Rules that read what lies beside contract.yaml: keys of other tables, a pinned reference, joint nulls."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import yaml
from test_contract_model import HEALTHY, column

from trainworthy.lifecycle.contract.model import Column
from trainworthy.lifecycle.contract.pin import bins_of
from trainworthy.lifecycle.contract.read import contract_problems, load_contract
from trainworthy.lifecycle.contract.reference import Reference, reference_text
from trainworthy.lifecycle.contract.rule import surplus
from trainworthy.lifecycle.contract.sample import sample_rows
from trainworthy.lifecycle.errors import DatasetError

SHOPS = "shop,city\nnorth,Kiel\nsouth,Ulm\n00501,Bonn\n"


class Folder:
    """A use case's folder with a contract that can be changed."""

    def __init__(self, path):
        self.path, self.values = path, copy.deepcopy(HEALTHY)
        self.table["properties"] += [column("shop", "string"), column("city", "string")]
        self.put("tables/shops.csv", SHOPS)

    @property
    def table(self):
        return self.values["schema"][0]

    def column(self, name):
        return next(item for item in self.table["properties"] if item["name"] == name)

    def put(self, name, text):
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(text)

    def tables(self, **files):
        self.values["customProperties"].append({"property": "tables", "value": files})

    def custom(self, **implementation):
        item = {"type": "custom", "engine": "trainworthy", "implementation": implementation}
        self.table["quality"].append(item)
        return item

    @property
    def contract(self):
        self.put("contract.yaml", yaml.safe_dump(self.values, sort_keys=False))
        return self.path / "contract.yaml"

    def rules(self):
        return {rule.id: rule for rule in load_contract(self.contract).rules}

    def problems(self):
        return list(map(str, contract_problems(self.contract)))

    def only(self):
        problems = self.problems()
        assert len(problems) == 1, problems
        return problems[0]

    def pin(self, **columns):
        reference = Reference(dataset="d", version="v1", content_hash="0" * 64, columns=columns)
        self.put("reference.json", reference_text(reference))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def shops(folder):
    folder.tables(shops="tables/shops.csv")
    folder.column("shop")["relationships"] = [{"to": "shops.shop"}]
    return folder


def test_null_together_compiles_with_any_number_of_columns(folder):
    folder.custom(rule="null_together", columns=["income", "shop", "city"])
    rule = folder.rules()["income.null_together.shop+city"]
    assert (rule.kind, rule.columns, rule.severity) == ("null_together", ("income", "shop", "city"), "error")
    assert rule.parameters == {"bound": {"operator": "mustBe", "value": 0, "unit": "rows"}}


def test_custom_rule_takes_a_bound_and_a_severity(folder):
    item = folder.custom(rule="null_together", columns=["shop", "city"], mustBeLessThan=3, unit="percent")
    item |= {"severity": "warning", "id": "place"}
    rule = folder.rules()["place"]
    assert rule.severity == "warning"
    assert rule.parameters["bound"] == {"operator": "mustBeLessThan", "value": 3, "unit": "percent"}


@pytest.mark.parametrize(
    ("implementation", "told"),
    [
        ({"rule": "null_together", "columns": ["shop"]}, "two columns or more"),
        ({"rule": "null_together", "columns": ["shop", "citty"]}, "'city'"),
        ({"rule": "null_together", "columns": ["shop", "city"], "zone": "UTC"}, "unknown key"),
        ({"rule": "null_together", "columns": ["shop", "city"], "mustBe": [1, 2]}, "number of limits"),
        ({"rule": "null_together", "columns": ["shop", "city"], "mustBeBetween": 1}, "number of limits"),
        ({"rule": "nul_together", "columns": ["shop", "city"]}, "'null_together'"),
        ({"rule": "distribution", "columns": ["income"]}, "the bound is missing"),
        ({"rule": "distribution", "columns": ["income", "shop"], "mustBe": 0}, "must name one column"),
        ({"rule": "distribution", "columns": ["income"], "mustBeLessThan": 101, "unit": "percent"}, "no possible"),
        ({"rule": "distribution", "columns": ["income"], "mustBe": 0, "mustNotBe": 1}, "exactly one"),
    ],
)
def test_custom_rule_with_a_mistake_is_refused_with_its_reason(folder, implementation, told):
    folder.custom(**implementation)
    assert told in folder.only()


def test_references_hold_the_typed_keys_of_the_table(shops):
    rule = shops.rules()["shop.references.shops"]
    assert rule.kind == "references"
    assert rule.parameters["keys"] == [("00501",), ("north",), ("south",)]


def test_references_of_a_composite_key_and_of_parquet_are_typed_like_the_columns(folder):
    pd.DataFrame({"key": [2, 1], "pay": [10, 20]}).to_parquet(folder.path / "pay.parquet")
    folder.tables(pay="pay.parquet")
    custom = [{"property": "severity", "value": "warning"}, {"property": "mustBeLessOrEqualTo", "value": 2},
              {"property": "unit", "value": "percent"}, {"property": "id", "value": "paid"}]  # fmt: skip
    pair = {"from": ["loans.id", "loans.income"], "to": ["pay.key", "pay.pay"], "customProperties": custom}
    folder.table["relationships"] = [pair]
    rule = folder.rules()["paid"]
    assert rule.columns == ("id", "income")
    assert json.dumps(rule.parameters["keys"]) == "[[1, 20.0], [2, 10.0]]"
    assert (rule.severity, rule.parameters["bound"]["value"]) == ("warning", 2)


def test_contract_hash_changes_with_a_key_and_not_with_the_order_of_keys(shops):
    before = load_contract(shops.contract).sha256
    shops.put("tables/shops.csv", "city,shop\nUlm,south\nBonn,00501\nKiel,north\n")
    assert load_contract(shops.contract).sha256 == before
    shops.put("tables/shops.csv", SHOPS + "west,Trier\n")
    assert load_contract(shops.contract).sha256 != before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("shop\nnorth\nnorth\n", "holds keys twice"),
        ("shop,city\nnorth,Kiel\n,Ulm\n", "null keys"),
        ("city\nKiel\n", "has no such column"),
        ("shop\n", "no key"),
        ("", "can't be read"),
        ("shop\n\udcff\n", "can't be read"),
    ],
)
def test_reference_table_with_a_mistake_is_refused(shops, text, told):
    (shops.path / "tables/shops.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert told in shops.only()


@pytest.mark.parametrize("file", ["../shops.csv", "/etc/shops.csv", "tables/../../shops.csv", "tables/link.csv"])
def test_reference_table_outside_of_the_folder_is_refused(folder, tmp_path_factory, file):
    outside = tmp_path_factory.mktemp("outside") / "shops.csv"
    outside.write_text(SHOPS)
    (folder.path / "tables" / "link.csv").symlink_to(outside)
    (folder.path.parent / "shops.csv").write_text(SHOPS)
    folder.tables(shops=file)
    folder.column("shop")["relationships"] = [{"to": "shops.shop"}]
    assert any("lies outside of the use case's folder" in problem for problem in folder.problems())


def change_tables(value):
    return lambda folder: folder.values["customProperties"][-1].update(value=value)


def relation(**values):
    return lambda folder: folder.column("shop").update(relationships=[values])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (change_tables({"shops": "tables/shopps.csv"}), "did you mean 'tables/shops.csv'"),
        (change_tables({"shops": "tables"}), "neither CSV nor Parquet"),
        (change_tables(["tables/shops.csv"]), "must map names to files"),
        (change_tables({"shops": "tables/shops.csv", "more": "tables/shops.csv"}), "no relationship uses"),
        (relation(to="shopps.shop"), "did you mean 'shops'"),
        (relation(to="schema/shops/properties/shop"), "short notation"),
        (relation(to=["shops.shop", "shops.city"]), "another number of columns"),
        (relation(to="shops.shop", customProperties=[{"property": "severty", "value": "info"}]), "'severity'"),
        (relation(to="shops.shop", customProperties=[{"property": "severity", "value": "fatal"}]), "unknown severity"),
        (lambda folder: folder.column("shop").update(logicalType="integer"), "no integer"),
        (lambda folder: folder.column("shop").update(logicalType="timestamp"), "can't be a key"),
    ],
)
def test_relationship_with_a_mistake_is_refused_with_its_reason(shops, change, told):
    change(shops)
    assert any(told in problem for problem in shops.problems()), shops.problems()


@pytest.mark.parametrize("wrong", [{"to": "shops.shop", "kind": "x"}, {"from": "loans.shop", "to": "shops.shop"}, {}])
def test_relationship_of_another_form_than_the_standards_is_refused(shops, wrong):
    shops.column("shop")["relationships"] = [wrong]
    assert shops.problems()


def test_relationship_of_the_table_names_its_own_columns(shops):
    pair = {"from": ["loan.shop", "loans.citty"], "to": ["shops.shop", "shops.city"]}
    shops.table["relationships"] = [pair]
    told = "\n".join(shops.problems())
    assert "write loans.shop" in told
    assert "did you mean 'city'" in told


def test_contract_hash_counts_the_keys_of_tables(shops):
    def identity():
        return load_contract(shops.contract).sha256

    before = identity()
    shops.put("notes.csv", "not,of,the,contract\n")
    assert identity() == before
    shops.put("tables/shops.csv", SHOPS + "west,Trier\n")
    assert identity() != before


def test_distribution_without_a_reference_says_which_command_makes_it(folder):
    folder.custom(rule="distribution", columns=["income"], mustBeLessOrEqualTo=10, unit="percent")
    assert f"trainworthy contract pin {folder.path.name}" in folder.only()
    assert load_contract(folder.contract, pinned=False)
    folder.pin(shop=bins_of(pd.Series(["a"] * 20), Column(name="shop", logical_type="string", role="other")))
    assert "holds no distribution of this column" in folder.only()


def test_distribution_takes_bins_and_counts_from_the_reference(folder):
    folder.custom(rule="distribution", columns=["income"], mustBeLessOrEqualTo=10, unit="percent")
    folder.pin(income=bins_of(pd.Series([*range(1000), None], dtype="float64"), INCOME))
    rule = folder.rules()["income.distribution"]
    assert rule.parameters["edges"] == [100.0 * place for place in range(1, 10)]
    assert rule.parameters["counts"] == [100] * 10 + [1]
    assert set(rule.parameters) == {"bound", "edges", "counts"}
    folder.column("income")["logicalType"] = "date"
    assert "another type" in folder.only()


@pytest.mark.parametrize(
    ("key", "value"),
    [("counts", [1, 2]), ("counts", [0] * 11), ("counts", [-1] + [1] * 10), ("edges", [2.0, 1.0]), ("extra", 1),
     ("edges", ["x"]), ("values", ["a"])],
)  # fmt: skip
def test_reference_that_was_edited_wrongly_is_refused(folder, key, value):
    folder.custom(rule="distribution", columns=["income"], mustBeLessOrEqualTo=10, unit="percent")
    folder.pin(income=bins_of(pd.Series(np.arange(1000.0)), INCOME))
    values = json.loads((folder.path / "reference.json").read_text())
    values["columns"]["income"][key] = value
    folder.put("reference.json", json.dumps(values))
    assert "reference.json" in folder.only()


INCOME = Column(name="income", logical_type="number", role="feature")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.random.default_rng(0).normal(size=999), "number"),
        (np.random.default_rng(0).integers(0, 3, 999), "integer"),
        (np.where(np.random.default_rng(0).random(999) < 0.9, 0.0, np.random.default_rng(0).random(999)), "number"),
        (np.where(np.random.default_rng(0).random(999) < 0.5, np.nan, 7.0), "number"),
        (np.where(np.random.default_rng(0).random(999) < 0.2, np.inf, 1.0), "number"),
        (pd.date_range("2020-01-01", periods=400), "date"),
        (pd.date_range("2020-01-01", periods=400, freq="min", tz="Europe/Berlin"), "timestamp"),
        (["a", "b", "b", None, *(["c"] * 30)], "string"),
        ([True, False, True] * 20, "boolean"),
        (pd.array([1, None, 3] * 20, dtype="Int64"), "integer"),
    ],
)  # fmt: skip
def test_bins_count_every_row_once_and_equal_rows_need_no_move(values, kind):
    values = pd.Series(values)
    bins = bins_of(values, Column(name="x", logical_type=kind, role="feature"))
    assert counted(values, bins.model_dump(exclude_none=True)) == list(bins.counts)
    assert surplus(bins.counts, bins.counts) == 0
    assert Reference.model_validate_json(
        reference_text(Reference(dataset="d", version="v1", content_hash="0" * 64, columns={"x": bins}))
    ).columns == {"x": bins}


def test_bins_of_many_zeros_tell_zero_from_the_rest():
    values = pd.Series([0.0] * 930 + list(np.linspace(0.01, 2, 70)))
    bins = bins_of(values, INCOME)
    assert bins.counts[0] == 930


def test_bins_of_a_sensitive_column_hold_no_small_aggregate():
    sensitive = {"role": "other", "sensitive": True}
    number = bins_of(pd.Series([*np.arange(75.0), None]), Column(name="x", logical_type="number", **sensitive))
    text = pd.Series(["a"] * 60 + ["b"] * 40 + ["c"] * 19 + [None] * 3)
    texts = bins_of(text, Column(name="x", logical_type="string", **sensitive))
    for bins in (number, texts):
        assert all(count == 0 or count >= 20 for count in bins.counts)
    assert (sum(number.counts), sum(texts.counts)) == (76, 122)
    assert texts.values == ("a",)


@pytest.mark.parametrize(
    ("values", "kind", "told"),
    [
        ([1.0] * 19, "number", "fewer than"),
        ([None] * 30, "number", "null in every row"),
        ([f"text {place}" for place in range(100)], "string", "less than half"),
        (["a"] * 30, "number", "holds string"),
    ],
)
def test_bins_that_would_say_nothing_are_refused(values, kind, told):
    with pytest.raises(DatasetError, match=told):
        bins_of(pd.Series(values), Column(name="x", logical_type=kind, role="feature"))


def test_sample_keeps_references_and_joint_nulls(shops):
    pair = {"from": ["loans.shop", "loans.city"], "to": ["shops.shop", "shops.city"]}
    shops.table["relationships"] = [pair]
    shops.custom(rule="null_together", columns=["shop", "city", "income"])
    rows = sample_rows(load_contract(shops.contract), ("shop", "income", "city"))
    known = rows.dropna()
    assert set(zip(known["shop"], known["city"], strict=True)) <= {
        ("north", "Kiel"),
        ("south", "Ulm"),
        ("00501", "Bonn"),
    }
    nulls = rows.isna().sum(axis=1)
    assert set(nulls) == {0, 3}


def counted(values, parameters):
    """Rows of each bin, as rule.py words it."""
    known = values.dropna()
    if "values" in parameters:
        counts = [int((known == value).sum()) for value in parameters["values"]]
        return [*counts, len(known) - sum(counts), len(values) - len(known)]
    edges = parameters["edges"]
    if edges and isinstance(edges[0], str):
        edges = [pd.Timestamp(edge).value for edge in edges]
        known = known.dt.as_unit("ns").astype("int64")
    places = np.searchsorted(np.array(edges, float), known.to_numpy(float), side="right")
    return [*np.bincount(places, minlength=len(edges) + 1).tolist(), len(values) - len(known)]
