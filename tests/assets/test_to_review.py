"""The strongest input is told before anything is trained, as long as nobody has said when its value is known."""

from trainworthy.assets.snapshot import to_review
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.protocol.leak import Leak, leakage_check


def contract_of(reviewed):
    columns = tuple(
        Column(name=name, logical_type="integer", role="feature", reviewed=reviewed if name == "refund" else True)
        for name in ("refund", "age")
    )
    label = Label(name="late", version=1, column="late")
    return Contract(name="c", version="1.0.0", columns=columns, rules=(), label=label, primary_key=("age",))


def leak(status, *columns):
    evidence = f"none of 2 features decides the label alone; the strongest, {columns[0]}, has AUC 0.909"
    return leakage_check(
        "leakage", [Leak(taxon="L2", family="single_feature", status=status, columns=columns, evidence=evidence)]
    )


def test_strongest_input_that_nobody_has_reviewed_is_told_with_its_figure_and_the_command():
    told = to_review([leak("pass", "refund")], contract_of(False), "churn")
    assert "refund, has AUC 0.909" in told
    assert told.endswith("trainworthy contract review churn")


def test_nothing_is_told_of_an_input_that_was_reviewed_or_is_not_the_strongest_or_failed():
    assert to_review([leak("pass", "refund")], contract_of(True), "churn") == ""
    assert to_review([leak("pass", "age")], contract_of(False), "churn") == ""
    assert to_review([leak("fail", "refund")], contract_of(False), "churn") == ""
    assert to_review([], contract_of(False), "churn") == ""
