"""`trainworthy contract`: test finds rules that say nothing, pin writes a reference, suggest drafts a contract."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from toy_project import ROOT

from trainworthy.expectations.validate import validate_frame
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.pipeline.cli import main

PINNED = (
    "{type: custom, engine: trainworthy, "
    "implementation: {rule: distribution, columns: [COLUMN], mustBeLessOrEqualTo: 10, unit: percent}}"
)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A copy of the toy's project; the state folder does not exist."""
    shutil.copytree(ROOT / "tests" / "toy", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(tmp_path / "project" / "use_cases"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    return tmp_path / "project" / "use_cases" / "toy"


def edit(folder, old, new):
    path = folder / "contract.yaml"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))


def test_contract_test_of_healthy_rules_is_well_without_any_data(toy, capsys):
    assert main(["contract", "test", "toy"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("toy: 20 claims of its rules, tried on 64 rows made from the contract")
    assert out.splitlines()[-1] == "each of them fails on some fault"
    assert not (toy.parents[2] / "state").exists()


@pytest.mark.parametrize("version", [(), ("--version", "v1")], ids=["made", "fetched"])
def test_contract_test_lists_the_rules_that_it_could_not_try(toy, capsys, version):
    equal = "{id: twins, type: custom, engine: trainworthy, implementation: {rule: equal, columns: [x1, score]}}"
    edit(toy, "- {id: enough_rows", f"- {equal}\n      - {{id: enough_rows")
    assert main(["contract", "test", "toy", *version]) == 0
    out = capsys.readouterr().out
    assert "each of them" not in out
    assert "\n  twins: " in out
    assert ("trainworthy contract test toy --version v1" in out) == (version == ())
    assert out.splitlines()[-1] == "the 20 that were tried fail on some fault; 1 rule was not tried"


def test_contract_test_names_the_rules_that_can_never_fail(toy, capsys):
    edit(toy, "{minimum: -10, maximum: 10}", "{minimum: -10, maximum: 1.0e+300}")
    edit(toy, "unit: percent, mustBeLessOrEqualTo: 10}", "unit: percent, mustBeLessOrEqualTo: 100}")
    assert main(["contract", "test", "toy", "--version", "v1"]) == 1
    out = capsys.readouterr().out
    assert "rows of toy_rows@v1" in out
    assert "✗ x1.range: range on x1, its maximum can never fail" in out
    assert "✗ score_share: nulls on score can never fail" in out
    assert "fix: tighten its bound" in out
    assert out.splitlines()[-1] == "2 can never fail"


def test_contract_pin_writes_the_reference_that_a_rule_asks_for(toy, capsys):
    edit(
        toy,
        "- {id: enough_rows",
        f"- {PINNED.replace('COLUMN', 'x1')}\n      - {PINNED.replace('COLUMN', 'shop')}\n      - {{id: enough_rows",
    )
    assert main(["check", "toy"]) == 1
    assert "run: trainworthy contract pin toy" in capsys.readouterr().out
    assert main(["contract", "pin", "toy"]) == 0
    reference = json.loads((toy / "reference.json").read_text())
    assert (reference["dataset"], reference["version"]) == ("toy_rows", "v1")
    assert reference["columns"]["shop"]["values"] == ["north", "south", "west"]
    assert len(reference["columns"]["x1"]["edges"]) == 9
    before = load_contract(toy / "contract.yaml").sha256
    assert main(["contract", "pin", "toy", "--version", "v2"]) == 0
    assert "(was toy_rows@v1)" in capsys.readouterr().out
    assert load_contract(toy / "contract.yaml").sha256 != before


def test_contract_pin_without_a_rule_that_needs_it_says_so(toy, capsys):
    assert main(["contract", "pin", "toy"]) == 1
    assert "no rule of kind distribution" in capsys.readouterr().err
    assert not (toy / "reference.json").exists()


def table():
    """Codes, two times in order, measures that lack the same rows, a text, a day."""
    generator = np.random.default_rng(0)
    rows = 3000
    start = pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(generator.integers(0, 10**6, rows), unit="s")
    lacking = generator.random(rows) < 0.05
    return pd.DataFrame(
        {
            "parcel": [f"P{number:06d}" for number in generator.permutation(rows)],
            "sent_at": start,
            "arrived_at": start + pd.to_timedelta(generator.integers(0, 10**5, rows), unit="s"),
            "weight": np.where(lacking, np.nan, generator.lognormal(0, 1, rows)),
            "volume": np.where(lacking, np.nan, generator.lognormal(1, 1, rows)),
            "depot": generator.choice(["north", "south"], rows),
            "code": ["".join(signs) for signs in generator.choice(list("ABCDEFGH"), (rows, 3))],
            "day": start.tz_localize(None).normalize(),
            "late": generator.random(rows) < 0.2,
        }
    )


def drafted(out, rows):
    """The draft's contract, after its own rows kept it; rules that the engine does not know are left out."""
    contract = load_contract(out)
    known = tuple(rule for rule in contract.rules if rule.kind != "null_together")
    results = validate_frame(rows, contract.model_copy(update={"rules": known}))
    assert [(result.rule.id, result.observed, result.error) for result in results if result.status != "pass"] == []
    return contract


def test_contract_suggest_drafts_a_contract_that_its_rows_keep(tmp_path, capsys):
    rows, out = table(), tmp_path / "contract.yaml"
    rows.to_parquet(tmp_path / "parcels.parquet")
    assert main(["contract", "suggest", str(tmp_path / "parcels.parquet"), "--out", str(out)]) == 0
    contract = drafted(out, rows)
    assert (contract.label.column, contract.primary_key) == ("late", ("parcel",))
    rules = {rule.id: rule for rule in contract.rules}
    assert rules["sent_at.less_or_equal.arrived_at"].severity == "warning"
    assert rules["weight.null_together.volume"].severity == "warning"
    assert rules["code.pattern"].parameters["pattern"] == "^[A-Z]{3}$"
    assert [rule.id for rule in contract.rules if rule.kind in ("less_or_equal", "null_together")] == [
        "weight.null_together.volume",
        "sent_at.less_or_equal.arrived_at",
    ]
    text = out.read_text()
    assert "review: a guess of the label" in text
    assert main(["contract", "suggest", str(tmp_path / "parcels.parquet")]) == 0
    assert yaml.safe_load(capsys.readouterr().out.partition("guessed")[2].partition("\n")[2]) == yaml.safe_load(text)


def test_contract_suggest_of_csv_files_types_their_texts(tmp_path):
    rows, out = table(), tmp_path / "contract.yaml"
    for number, part in enumerate((rows.head(1500), rows.tail(1500))):
        part.to_csv(tmp_path / f"part{number}.csv", index=False)
    files = [str(tmp_path / f"part{number}.csv") for number in (0, 1)]
    assert main(["contract", "suggest", *files, "--target", "weight", "--out", str(out)]) == 0
    contract = drafted(out, rows)
    assert {column.name: column.logical_type for column in contract.columns}["sent_at"] == "timestamp"
    assert contract.label.greater_than == pytest.approx(rows["weight"].median())
    assert contract.column("weight").role == "target_source"


def test_contract_suggest_of_a_dataset_version_finds_its_key(toy, capsys):
    assert main(["contract", "suggest", "toy_rows@v1"]) == 0
    assert "primaryKey: true" in capsys.readouterr().out


def test_contract_suggest_leaves_an_existing_file_as_it_is(tmp_path, capsys):
    table().to_parquet(tmp_path / "parcels.parquet")
    out = tmp_path / "contract.yaml"
    out.write_text("mine")
    assert main(["contract", "suggest", str(tmp_path / "parcels.parquet"), "--out", str(out)]) == 1
    assert out.read_text() == "mine"
    assert "it stays" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rows.parquet", "--target", "latte"], "did you mean 'late'"),
        (["rows.parquet", "--target", "depot"], "can't make a label"),
        (["rows.parquet", "--key", "depot"], "does not name a row"),
        (["nothing.parquet"], "there is no such file"),
        (["toy_row"], "did you mean 'toy_rows'"),
        (["rows.parquet", "other.csv"], "different columns"),
        (["twice.parquet"], "no columns name a row"),
    ],
)
def test_contract_suggest_tells_what_is_wrong(toy, tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    rows = table()
    rows.to_parquet("rows.parquet")
    rows[["depot"]].to_csv("other.csv", index=False)
    pd.DataFrame({"depot": ["a", "b"] * 50, "late": [0, 1] * 50}).to_parquet("twice.parquet")
    assert main(["contract", "suggest", *arguments]) == 1
    assert told in capsys.readouterr().err
