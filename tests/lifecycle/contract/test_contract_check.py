"""What the check `contract` says: what to do about each state, and a line that stays a line."""

import pytest

from trainworthy.lifecycle.contract.result import contract_check, could_not, counted
from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule


def rule(number, severity="error"):
    return make_rule(f"r{number}", "nulls", ("a",), severity, bound=NO_ROW)


FAILED = counted(rule(0), 3, 10)
UNJUDGED = could_not(rule(1), 10, "the column a is missing", ())


@pytest.mark.parametrize(
    ("results", "status", "said", "unsaid"),
    [
        ([FAILED], "fail", "correct the dataset", "could not be evaluated"),
        ([UNJUDGED], "error", "restore the column", "correct the dataset"),
        ([], "error", "write at least one rule", "correct the dataset"),
    ],
)
def test_contract_check_says_what_to_do_about_each_state(results, status, said, unsaid):
    check = contract_check(results)
    assert check.status == status
    assert said in check.fix
    assert unsaid not in check.fix


def test_contract_check_with_failed_and_unjudged_rules_says_both():
    fix = contract_check([FAILED, UNJUDGED]).fix
    assert "correct the dataset" in fix
    assert "restore the column" in fix


def test_contract_check_of_many_failed_rules_names_five_and_counts_the_others():
    check = contract_check([counted(rule(number, "warning" if number < 3 else "error"), 1, 10) for number in range(40)])
    assert check.evidence.startswith("37 of 40 rules fail; r3: 1 of 10 rows")
    assert check.evidence.endswith("r7: 1 of 10 rows (10 %); and 35 more, in the details")
    assert len(check.details) == 40


def test_contract_check_of_five_rules_names_them_all():
    assert contract_check([counted(rule(number), 1, 10) for number in range(5)]).evidence.count("rows (10 %)") == 5
