"""The page of all use cases: champion, newest run and cost as the records have them, and what cannot be read said."""

import json
import re
import shutil
from pathlib import Path

import pytest

from trainworthy.lifecycle.report.site import UseCaseRow, render_site
from trainworthy.pipeline.cli import main

GOLDEN = Path(__file__).parents[1] / "lifecycle" / "golden_records"
TOY = Path(__file__).parents[1] / "toy" / "use_cases"


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A state folder with the records of a use case that has a champion, and a report for each run."""
    folder = tmp_path / "state"
    for name in ("records", "verdicts"):
        shutil.copytree(GOLDEN / name, folder / name)
    for run in (folder / "records" / "toy" / "runs").iterdir():
        report = folder / "reports" / "toy" / f"{run.name}.html"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("<p>report</p>")
    monkeypatch.setenv("TRAINWORTHY_VAR", str(folder))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(TOY))
    return folder


def page_of(folder):
    return (folder / "index.html").read_text()


def test_page_shows_the_champion_and_links_reports_that_lie_beside_it(state, tmp_path, capsys):
    out = tmp_path / "site"
    assert main(["site", "--out", str(out)]) == 0
    page = page_of(out)
    live = json.loads((state / "verdicts" / "toy.jsonl").read_text().splitlines()[-1])
    assert f"version {live['model_version']}" in page
    costs = [json.loads(path.read_text())["cost"]["usd"] for path in (state / "records/toy/objects").glob("*.json")]
    assert sum(costs) > 0
    targets = re.findall(r'href="(reports/[^"]+)"', page)
    assert targets
    assert all((out / target).read_text() == "<p>report</p>" for target in targets)
    assert "http" not in page.replace("http-equiv", "")


def test_default_folder_lies_in_the_state_folder_and_is_written_anew(state):
    assert main(["site"]) == 0
    first = page_of(state / "site")
    shutil.rmtree(state / "records")
    (state / "verdicts" / "toy.jsonl").unlink()
    assert main(["site"]) == 0
    assert "version" in first
    assert "none yet" in page_of(state / "site")


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(state, tmp_path, monkeypatch, capsys):
    cases = tmp_path / "use_cases"
    shutil.copytree(TOY, cases)
    (cases / "toy" / "use_case.yaml").write_text("name: [")
    newest = max((state / "records/toy/objects").glob("*.json"))
    newest.write_text("{")
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(cases))
    assert main(["site", "--out", str(tmp_path / "site")]) == 0
    told = capsys.readouterr().out
    assert "trainworthy check toy" in told
    assert "cost without 1 records that cannot be read" in page_of(tmp_path / "site")


@pytest.mark.parametrize("there", ["file", "page"])
def test_what_somebody_else_wrote_stays(state, tmp_path, there, capsys):
    out = tmp_path / "out"
    mine = out if there == "file" else out / "index.html"
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    assert main(["site", "--out", str(out)]) == 1
    assert mine.read_text() == "mine"
    assert "--out" in capsys.readouterr().err


def test_empty_project_and_texts_from_outside_are_harmless():
    assert "trainworthy new" in render_site([], "2026-01-01T00:00:00+00:00", 30)
    page = render_site([UseCaseRow(name="a", question="<script>x</script>")], "2026-01-01T00:00:00+00:00", 30)
    assert "<script>" not in page
