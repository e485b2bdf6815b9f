"""trainworthy doctor on the project: use cases, prices, what git holds, and sensitive columns in kept predictions."""

import dataclasses
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from doctor_checks import bad, only
from toy_project import ROOT

from trainworthy.pipeline.doctor import examine, project, sensitive
from trainworthy.resources.settings import Settings, read_settings


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("use_case.yaml", "epochs: 6", "epochs: many", "training.epochs"),
        ("use_case.yaml", "version: v1", "version: v7", "no such published version"),
        ("use_case.yaml", "sku: local-2cpu", "sku: local-3cpu", "did you mean 'local-2cpu'?"),
    ],
)
def test_doctor_use_case_that_cannot_run_fails(place, name, old, new, told):
    assert bad(project.use_cases) == []
    path = place / "project" / "use_cases" / "toy" / name
    path.write_text(path.read_text().replace(old, new))
    only(project.use_cases, "✗ use case toy", told)


def test_doctor_folder_of_use_cases_that_is_empty_or_missing_fails(place, monkeypatch):
    (place / "none").mkdir()
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(place / "none"))
    only(project.use_cases, "there is no use case")
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(place / "nowhere"))
    settings, wrong = examine.settings_there()
    assert (settings.var, settings.use_cases) == (place / "state", ())
    assert wrong is not None
    assert "nowhere" in wrong.evidence


def test_doctor_project_that_init_has_just_made_lacks_nothing(place, monkeypatch):
    (place / "fresh" / "use_cases").mkdir(parents=True)
    folders, var = (place / "fresh" / "use_cases",), place / "fresh" / "var"
    fresh = dataclasses.replace(read_settings(), use_cases=folders, var=var)
    monkeypatch.delenv("TRAINWORTHY_USE_CASES")
    (found,) = project.use_cases(fresh)
    assert found.status == "not_applicable"
    assert "trainworthy new NAME" in found.evidence
    # With state of runs, use cases have gone.
    (place / "fresh" / "var").mkdir()
    only(project.use_cases, "there is no use case", settings=fresh)


def test_doctor_prices_that_are_old_or_broken_are_told(place):
    prices = place / "prices.yaml"
    settings = Settings(project=place, var=place / "state", use_cases=(), prices=prices)
    only(project.prices, "✗ prices", "prices.yaml is missing", settings=settings)
    prices.write_text("dated: 2001-01-01\nskus: {a: {usd_per_hour: 1}}\n")
    only(project.prices, "! prices", "2001-01-01", settings=settings)
    prices.write_text("dated: 2999-01-01\nskus: {a: {usd_per_hour: 1}}\n")
    assert bad(project.prices, settings) == []


def test_doctor_tells_the_project_and_warns_where_dagster_has_no_settings(place):
    settings = read_settings()
    (told,) = examine.examined(project.location, settings)
    assert (told.status, str(ROOT) in told.evidence) == ("pass", True)
    bare = replace(settings, project=place / "project")
    only(project.location, f"! project: {place}/project", "trainworthy init", settings=bare)


def test_doctor_code_that_no_commit_holds_is_a_warning(place, monkeypatch):
    monkeypatch.setattr(project, "git_state", lambda folder: ("0" * 40, False))
    assert bad(project.git) == []
    monkeypatch.undo()
    folder = place / "project" / "use_cases" / "toy"
    (folder / "notes.py").touch()
    settings = Settings(project=place, var=place, use_cases=(folder.parent,), prices=place)
    only(project.git, "! git toy: commit", "not in it: use_cases/toy/notes.py", "git commit", settings=settings)
    shutil.rmtree(place / "project" / ".git")
    only(project.git, "in no git repository", "git init", settings=settings)


def mark_sensitive(place: Path, column: str) -> None:
    """Call the column sensitive in the contract."""
    contract = place / "project" / "use_cases" / "toy" / "contract.yaml"
    text = contract.read_text()
    assert text.count(f"name: {column}") == 1
    before, _, after = text.partition(f"name: {column}")
    sign = "customProperties: ["
    sensitive = f"{sign}{{property: sensitive, value: true}}, "
    contract.write_text(before + f"name: {column}" + after.replace(sign, sensitive, 1))


def test_doctor_predictions_with_a_sensitive_column_in_the_clear_are_told_and_mended(place):
    mark_sensitive(place, "shop")
    path = place / "state" / "evaluation" / "toy" / "planted" / "predictions.parquet"
    path.parent.mkdir(parents=True)
    kept = pd.DataFrame({"candidate": [0.1, 0.2], "slice:day": ["a", "b"]})
    kept.assign(**{"slice:shop": ["value 1", "value 2"]}).to_parquet(path)
    assert bad(sensitive.sensitive) == []
    kept.assign(**{"slice:shop": ["Mrs Smith's", "value 2"]}).to_parquet(path)
    only(sensitive.sensitive, "shop", str(path), "--fix")
    (line,) = [line for line in examine.repairs() if "predictions" in line]
    assert line.startswith("repaired: shop taken out of")
    pd.testing.assert_frame_equal(pd.read_parquet(path), kept)
    assert bad(sensitive.sensitive) == []
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "file", ["evaluation/toy/planted/reference.parquet", "champion/toy/planted/predictions.parquet",
             "deployment/toy/planted/predictions.parquet"],
)  # fmt: skip
def test_doctor_predictions_with_sensitive_groups_in_the_clear_are_told_and_mended(place, file):
    path = place / "state" / file
    path.parent.mkdir(parents=True)
    rows = pd.DataFrame({"group": ["Smith", "Jones", None, "Smith"], "candidate": [0.1, 0.2, 0.3, 0.4]})
    rows.to_parquet(path)
    assert bad(sensitive.sensitive) == []
    mark_sensitive(place, "day")
    only(sensitive.sensitive, "day", str(path), "--fix")
    (line,) = [line for line in examine.repairs() if "taken out of" in line]
    assert line == f"repaired: day taken out of {path}"
    mended = pd.read_parquet(path)
    assert mended["group"].fillna("").tolist() == ["value 1", "value 2", "", "value 1"]
    pd.testing.assert_series_equal(mended["candidate"], rows["candidate"])
    assert bad(sensitive.sensitive) == []
