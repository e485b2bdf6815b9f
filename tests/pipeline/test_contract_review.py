"""`trainworthy contract review`: asks when each value is known, and changes nothing else in contract.yaml."""

import io
import shutil

import pytest
import yaml
from toy_project import ROOT

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.review import answer_values, with_answers
from trainworthy.pipeline import review as reviews
from trainworthy.pipeline.check import _file
from trainworthy.pipeline.cli import main

FLOW = """\
# A remark that stays.
schema:
  - name: rows
    properties:
      # guessed
      - name: x
        customProperties: [{property: role, value: feature}, {property: availableAt, value: PT0S}, {property: reviewed, value: false}]  # kept
      - {name: y, customProperties: [{property: role, value: other}]}
"""  # noqa: E501
BLOCK = """\
schema:
  - name: rows
    properties:
      - name: x
        customProperties:
          - property: role
            value: feature
          - {property: availableAt, value: PT0S}
          # nobody has said so
          - property: reviewed
            value: false
        quality: []
      - name: y
        customProperties:
        - property: role
          value: other
"""


@pytest.fixture
def drafted(tmp_path, monkeypatch):
    """The toy's contract as a draft would have it: nobody has reviewed an input."""
    shutil.copytree(ROOT / "tests" / "toy", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(tmp_path / "project" / "use_cases"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    path = tmp_path / "project" / "use_cases" / "toy" / "contract.yaml"
    known = "{property: availableAt, value: PT0S}"
    path.write_text(path.read_text().replace(known, f"{known}, {{property: reviewed, value: false}}"))
    return path


def properties(text, column):
    (found,) = [one for one in yaml.safe_load(text)["schema"][0]["properties"] if one["name"] == column]
    return {item["property"]: item["value"] for item in found["customProperties"]}


@pytest.mark.parametrize("text", [FLOW, BLOCK], ids=["flow", "block"])
@pytest.mark.parametrize(
    ("column", "known", "expected"),
    [
        ("x", "PT0S", {"role": "feature", "availableAt": "PT0S", "reviewed": True}),
        ("x", "-PT1H", {"role": "feature", "availableAt": "-PT1H", "reviewed": True}),
        ("x", "PT2H", {"role": "other", "availableAt": "PT2H", "reviewed": True}),
        ("x", "later", {"role": "other", "reviewed": True}),
        ("x", "target", {"role": "other", "reviewed": True}),
        ("x", "booking", {"role": "feature", "availableAt": "booking", "reviewed": True}),
        ("y", "-P1D", {"role": "feature", "availableAt": "-P1D"}),
    ],
)
def test_review_answer_changes_the_columns_values_and_nothing_else(text, column, known, expected):
    values = answer_values(known, ("booking", "prediction"))
    changed, problems = with_answers(text, {column: values})
    assert problems == []
    assert properties(changed, column) == expected
    other = {"x": "y", "y": "x"}[column]
    assert properties(changed, other) == properties(text, other)
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    assert [line.partition("#")[2] for line in changed.splitlines() if "#" in line] == comments


def test_review_of_several_columns_at_once_and_of_none(tmp_path):
    changed, problems = with_answers(FLOW, {"x": answer_values("later", ()), "y": answer_values("PT0S", ())})
    assert problems == []
    assert properties(changed, "x") == {"role": "other", "reviewed": True}
    assert properties(changed, "y") == {"role": "feature", "availableAt": "PT0S"}
    assert with_answers(FLOW, {}) == (FLOW, [])


def test_review_by_options_is_written_and_the_rest_still_waits(drafted, capsys):
    assert (
        main(["contract", "review", "toy", "--column", "x1", "--known=-PT1H", "--column", "x2", "--known", "later"])
        == 0
    )
    contract, out = load_contract(drafted), capsys.readouterr().out
    assert contract.column("x1").available_at == "-PT1H"
    assert contract.feature_columns == ("shop", "x1")
    assert contract.unreviewed_features == ("shop",)
    assert "model.py still names x2" in out
    assert "1 of 2 inputs waits for a review: shop" in out
    assert "go on: trainworthy contract review toy" in out


def test_review_without_a_terminal_lists_what_waits_and_fails(drafted, capsys, monkeypatch):
    before = drafted.read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["contract", "review", "toy"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("3 inputs of toy wait for a review, the strongest first:")
    assert "--column shop --known WHEN\n  WHEN: PT0S (known when the model is asked), later, target (made of it)" in out
    assert drafted.read_text() == before
    drafted.write_text(before.replace("- name: shop\n", "- name: the shop\n"))
    assert main(["contract", "review", "toy"]) == 1
    assert "--column 'the shop' --known WHEN" in capsys.readouterr().out


def test_check_counts_the_inputs_that_wait(drafted):
    path = drafted.parent / "contract.yaml"
    told = _file("toy", "contract.yaml", [], None, load_contract(path)).evidence
    assert told.endswith("; 3 wait for: trainworthy contract review toy")
    assert main(["contract", "review", "toy", "--accept-all", "--reason", "a form"]) == 0
    assert "review" not in _file("toy", "contract.yaml", [], None, load_contract(path)).evidence


def test_review_accept_all_names_the_strongest_that_nobody_was_asked_about(drafted, capsys, monkeypatch):
    monkeypatch.setattr(reviews, "_alone", lambda use_case, contract: {"x1": 0.97, "x2": 0.88, "shop": 0.51})
    told = ["--column", "x1", "--known", "later", "--accept-all", "--reason", "form"]
    assert main(["contract", "review", "toy", *told]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("accepted unasked, the strongest first: x2: AUC 0.880 alone, shop: AUC 0.510 alone; is each")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_review_on_a_terminal_asks_for_each_until_it_is_stopped(drafted, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Terminal("\nsoon\nlater\nstop\n"))
    assert main(["contract", "review", "toy"]) == 0
    contract, out = load_contract(drafted), capsys.readouterr().out
    assert "1 of 3: shop (string)" in out
    assert "'soon' is no answer" in out
    assert contract.column("shop").reviewed is True
    assert contract.column("x1").role == "other"
    assert contract.unreviewed_features == ("x2",)


def test_review_accept_all_writes_the_reason_beside_answers_and_nothing_waits(drafted, capsys):
    reason = "all columns come from the order form: it is signed before we are asked"
    options = ["--column", "x1", "--known", "PT0S", "--accept-all", "--reason", reason]
    assert main(["contract", "review", "toy", *options]) == 0
    contract = load_contract(drafted)
    assert contract.unreviewed_features == ()
    assert contract.accepted_features == {"shop": reason, "x2": reason}
    assert "none of the 3 inputs of toy waits for a review" in capsys.readouterr().out
    before = drafted.read_text()
    assert main(["contract", "review", "toy"]) == 0
    assert drafted.read_text() == before


@pytest.mark.parametrize(
    "reason",
    [
        "a published table, whose columns are known",
        "[signed] {before}",
        'it\'s "known" # really',
        "42",
        "ja, früher\nso",
    ],
)
def test_review_accept_all_takes_any_text_as_a_reason(drafted, reason):
    assert main(["contract", "review", "toy", "--accept-all", "--reason", reason]) == 0
    assert set(load_contract(drafted).accepted_features.values()) == {reason}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--accept-all"], "needs a reason"),
        (["--accept-all", "--reason", " "], "needs a reason"),
        (["--reason", "why"], "needs a reason"),
        (["--column", "x1"], "1 columns and 0 answers"),
        (["--column", "x1", "--known", "soon"], "is no answer"),
        (["--column", "x9", "--known", "PT0S"], "is no column of contract.yaml"),
        (["--column", "row_id", "--known", "PT0S"], "has the role key"),
        (["--column", "row_id", "--known", "PT0S"], "primaryKey: true may stay beside that"),
        (["--column", "score", "--known", "PT0S"], "the label is no input"),
    ],
)
def test_review_that_cannot_be_done_is_told_and_writes_nothing(drafted, capsys, options, told):
    before = drafted.read_text()
    assert main(["contract", "review", "toy", *options]) == 1
    assert told in capsys.readouterr().err
    assert drafted.read_text() == before


def as_entity(path, column):
    text = path.read_text()
    start = text.index("property: role", text.index(f"- name: {column}\n"))
    path.write_text(text[:start] + text[start:].replace("feature", "entity", 1))


def test_review_makes_an_entity_an_input_and_says_that_the_network_does_not_read_it(drafted, capsys):
    as_entity(drafted, "shop")
    assert "shop" not in load_contract(drafted).feature_columns
    code = drafted.parent / "model.py"
    assert main(["contract", "review", "toy", "--column", "shop", "--known", "PT0S"]) == 0
    contract = load_contract(drafted)
    assert "shop" in contract.feature_columns
    assert contract.column("shop").available_at == "PT0S"
    assert "does not read" not in capsys.readouterr().out
    code.write_text(code.read_text().replace('"shop"', '"place"'))
    assert main(["contract", "review", "toy", "--column", "shop", "--known", "PT0S"]) == 0
    assert "model.py does not read shop yet" in capsys.readouterr().out


def test_review_makes_a_part_of_a_key_an_input_that_stays_in_the_key(drafted):
    text = drafted.read_text()
    drafted.write_text(text.replace("{name: day,", "{name: day, primaryKey: true,", 1))
    assert main(["contract", "review", "toy", "--column", "row_id", "--known", "PT0S"]) == 0
    contract = load_contract(drafted)
    assert "row_id" in contract.feature_columns
    assert contract.primary_key == ("row_id", "day")


def test_review_keeps_the_column_of_whole_groups_out_of_the_inputs(drafted, capsys):
    as_entity(drafted, "shop")
    path = drafted.parent / "use_case.yaml"
    document = yaml.safe_load(path.read_text())
    shares = {"validation": 0.2, "calibration": 0.1, "benchmark": 0.2}
    document["split"] = {"by": "group", "group": "shop", "salt": "v1", "shares": shares, "resample_by": "shop"}
    path.write_text(yaml.safe_dump(document))
    before = drafted.read_text()
    assert main(["contract", "review", "toy", "--column", "shop", "--known", "PT0S"]) == 1
    assert "is what whole groups are split by" in capsys.readouterr().err
    assert drafted.read_text() == before


def test_review_of_a_contract_that_says_nothing_of_reviews_has_nothing_to_ask(drafted, capsys):
    drafted.write_text((ROOT / "tests" / "toy" / "use_cases" / "toy" / "contract.yaml").read_text())
    assert main(["contract", "review", "toy"]) == 0
    assert "none of the 3 inputs of toy waits for a review" in capsys.readouterr().out
