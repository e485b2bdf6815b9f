"""The pages of this documentation as text files, from `trainworthy new` to a verdict."""

from pathlib import Path

import pytest
from known import known
from toy_project import FIRST, ROOT, Toy, committed

from trainworthy.lifecycle.protocol.records import EvaluationReport, Verdict
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState

# Characters of a page: a training takes as long as all of them are, and pages grow.
PAGE = 4200


@pytest.mark.slow
def test_folder_of_texts_ends_in_a_verdict_on_a_network_that_has_learned_to_go_on(tmp_path: Path):
    root = tmp_path / "project"
    (root / "use_cases").mkdir(parents=True)
    data = tmp_path / "pages"
    data.mkdir()
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        (data / f"{page.stem}.txt").write_text(page.read_text(encoding="utf-8")[:PAGE], encoding="utf-8")
    toy = Toy(root, tmp_path / "state")
    made = toy.call("-m", "trainworthy.pipeline.cli", "new", "pages", "--data", str(data))
    assert made.code == 0, made.out
    assert "texts without classes: kind language_model" in made.out
    # The drafted network; of its eight epochs three are enough to tell that it has learned.
    drafted = root / "use_cases" / "pages" / "use_case.yaml"
    assert "  epochs: 8\n" in drafted.read_text()
    drafted.write_text(drafted.read_text().replace("  epochs: 8\n", "  epochs: 3\n"))
    committed(root)
    checked = toy.call("-m", "trainworthy.pipeline.cli", "check", "pages")
    assert checked.code == 0, checked.out
    done = toy.run("train_pages", FIRST)
    assert done.run_id, done.out
    records = StateRecords(FolderState(toy.var))
    verdict, evaluation = (records.of_run("pages", step, done.run_id) for step in ("promotion", "evaluation"))
    assert isinstance(verdict, Verdict), done.out
    assert isinstance(evaluation, EvaluationReport)
    # Input and label are one column, so that nothing can be changed.
    assert known(evaluation.changed_inputs).reason == "no feature has values that can be changed"
    gains = {one.reference: one.gain for one in evaluation.comparisons if one.metric == "bits_per_byte"}
    assert gains["prior"].low > 1
