"""The catalogue: ids are unique, each check has its page with its own words, and the index names them all."""

import re
from pathlib import Path

import pytest

from trainworthy.lifecycle.engine.preflight.catalogue import TRAINER_CHECKS, WORKER_CHECKS
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.check import CheckWords
from trainworthy.lifecycle.gates.host import AFTER_CHECKS, HOST_CHECKS
from trainworthy.lifecycle.gates.pages import PAGES, index_text
from trainworthy.lifecycle.gates.preflight import FAMILIES, TRAINER
from trainworthy.lifecycle.use_case import load_use_case

TOY = Path(__file__).parents[2] / "toy" / "use_cases" / "toy"


def begins_with_its_words(page: str, check: CheckWords) -> bool:
    """Id and four texts, in their order; how lines are broken and labels are set is the page's."""
    plain = " ".join(page.replace("**", " ").split())
    texts = (("Asks", check.question), ("Symptom", check.symptom), ("Cause", check.cause), ("Fix", check.fix))
    told = r"\s*".join(rf"{label}\W*{re.escape(' '.join(text.split()))}\W*" for label, text in texts)
    return re.match(rf"# {re.escape(check.id)}\W*{told}", plain) is not None


def test_catalogue_ids_are_unique_and_of_a_known_family():
    ids = [check.id for check in CATALOGUE]
    assert len(set(ids)) == len(ids)
    assert {check.family for check in CATALOGUE} <= {*FAMILIES, TRAINER}


def test_catalogue_checks_have_all_their_words():
    bare = [c.id for c in CATALOGUE if not all((c.question, c.symptom, c.cause, c.fix))]
    assert bare == []
    assert [c.id for c in CATALOGUE if not c.question.endswith("?")] == []


def test_catalogue_checks_have_a_page_that_begins_with_their_words():
    missing = [check.id for check in CATALOGUE if not (PAGES / f"{check.id}.md").is_file()]
    other = [
        check.id for check in CATALOGUE
        if check.id not in missing and not begins_with_its_words((PAGES / f"{check.id}.md").read_text(), check)
    ]  # fmt: skip
    long = [path.name for path in PAGES.glob("*.*.md") if len(path.read_text().splitlines()) > 40]
    assert (missing, other, long) == ([], [], []), "no page; other words than the check's; over 40 lines"


def test_catalogue_has_no_page_of_a_check_that_is_gone():
    assert {path.stem for path in PAGES.glob("*.*.md")} - {check.id for check in CATALOGUE} == set()


def test_catalogue_index_is_what_the_code_gives():
    wanted = "python -m trainworthy.lifecycle.gates.pages > docs/preflight/README.md"
    assert (PAGES / "README.md").read_text() == index_text(), f"run: {wanted}"


def use_case_with(tmp_path: Path, preflight: str, model: str = ""):
    folder = tmp_path / "toy"
    folder.mkdir()
    for path in TOY.iterdir():
        if path.is_file():
            (folder / path.name).write_text(path.read_text())
    (folder / "use_case.yaml").write_text(f"{(TOY / 'use_case.yaml').read_text()}\n{preflight}\n")
    (folder / "model.py").write_text(f"{(TOY / 'model.py').read_text()}\n\n{model}\n")
    return load_use_case(folder)


def test_not_applicable_of_known_checks_loads_with_its_reasons(tmp_path):
    declared = "preflight: {not_applicable: {overfit.ten_batches: a generative model, own.order: not sorted}}"
    declared = declared.replace("own", "overfit.zeroed_inputs: of before it was retired, own")
    use_case = use_case_with(tmp_path, declared, "def check_order(subject):\n    return None")
    assert use_case.spec.preflight.not_applicable["own.order"] == "not sorted"


def test_not_applicable_of_an_unknown_check_is_told_with_the_other_problems(tmp_path):
    declared = "preflight: {strat: scratch, not_applicable: {overfit.ten_batch: why, own.oder: why, nonsense: why}}"
    with pytest.raises(UseCaseError) as error:
        use_case_with(tmp_path, declared, "def check_order(subject):\n    return None")
    told = str(error.value)
    assert "preflight.not_applicable.overfit.ten_batch: there is no such check" in told
    assert "did you mean 'overfit.ten_batches'?" in told
    assert "did you mean 'own.order'?" in told
    assert "docs/preflight/README.md lists them" in told
    assert "preflight.strat: unknown key" in told


def test_not_applicable_without_a_reason_is_refused(tmp_path):
    with pytest.raises(UseCaseError, match=r"overfit\.ten_batches"):
        use_case_with(tmp_path, "preflight: {not_applicable: {overfit.ten_batches: ' '}}")


def test_catalogue_checks_come_after_those_that_they_wait_for():
    ids = [check.id for check in CATALOGUE]
    late = [c.id for c in CATALOGUE if c.after and c.after not in ids[: ids.index(c.id)]]
    assert late == []


def test_catalogue_is_what_looks_in_the_order_and_the_place_in_which_it_looks():
    looks = {"host": HOST_CHECKS, "worker": WORKER_CHECKS, "script": TRAINER_CHECKS, "after": AFTER_CHECKS}
    assert [check.id for checks in looks.values() for check in checks] == [check.id for check in CATALOGUE]
    for runs, checks in looks.items():
        assert {check.runs for check in checks} == {runs}
