"""docs/how-to/tasks.md: its metrics are those that each kind has, and its examples load."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy_jobs
import yaml

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.spec.task import KINDS, TaskSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.language_model import LanguageModel
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.multilabel import Multilabel
from trainworthy.lifecycle.tasks.regression import Regression
from trainworthy.pipeline.scaffold.held import LEAST_CLASS_ROWS
from trainworthy.pipeline.scaffold.pieces import MOST_BYTES, MOST_PIECES, PIECES_A_PASSAGE
from trainworthy.pipeline.scaffold.shares import LEAST_GROUPS
from trainworthy.pipeline.scaffold.target import LONG_BYTES, NEARLY_ALL
from trainworthy.pipeline.scaffold.unfit import FEW, MOST_TEXTS, ROWS_A_TEXT

TEXT = (toy_jobs.ROOT / "docs" / "how-to" / "tasks.md").read_text()
SECTIONS: dict[str, Any] = {
    "binary": BINARY,
    "multiclass": Multiclass(("class", "other")),
    "multilabel": Multilabel(("class", "other")),
    "regression: a number": Regression(),
    "regression: quantiles": Regression((0.5, 0.9)),
    "language_model": LanguageModel(256),
}
# One class and one quantile stand for all.
OTHERS = re.compile(r".*\[(other|0\.5)\]")


def documented(heading: str) -> dict[str, tuple[str, bool]]:
    """What is better, and whether it may be primary, of each metric of a section."""
    section = TEXT.partition(f"\n### {heading}\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| .* \|$", section, re.MULTILINE)
    return {name: (better, mark == "✓") for names, better, mark in rows for name in re.findall("`(.*?)`", names)}


def known(kind: Kind) -> dict[str, tuple[str, bool]]:
    return {
        name: ("as declared" if "coverage" in name else "more" if metric.higher_is_better else "less", metric.ranks)
        for name, metric in kind.metrics.items()
        if not OTHERS.fullmatch(name)
    }


@pytest.mark.parametrize("heading", SECTIONS)
def test_tasks_doc_has_each_metric_of_the_kind_and_no_other(heading):
    found = documented(heading)
    # A table of one metric that is a whole kind's would be a parse that failed.
    assert len(found) > 4
    assert found == known(SECTIONS[heading])


def test_tasks_doc_s_examples_of_tasks_load_and_each_kind_has_one():
    (block,) = (block for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if "use_case.yaml" in block)
    tasks = [yaml.safe_load(line)["task"] for line in block.splitlines() if line.startswith("task:")]
    assert {TaskSpec.model_validate(task).kind for task in tasks} == set(KINDS)


def test_tasks_doc_s_examples_of_labels_load_and_each_type_has_one():
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if "property: label" in block]
    keys = {"greaterThan": "greater_than"}
    values = [one["value"] for block in blocks for one in yaml.safe_load(block)["customProperties"]]
    labels = [Label.model_validate({keys.get(key, key): found for key, found in value.items()}) for value in values]
    assert {label.type for label in labels} == {"event", "class", "labels", "number", "mask", "text"}


def test_tasks_doc_says_the_limits_by_which_a_kind_is_seen():
    assert f"at most {MOST_TEXTS} different ones with {ROWS_A_TEXT} rows each on average" in TEXT
    assert f"at most {FEW} different whole numbers, each in {LEAST_CLASS_ROWS} rows or more" in TEXT
    assert (
        f"of {LONG_BYTES} bytes or more, of which at least {100 * NEARLY_ALL:.0f} % of the rows have their own" in TEXT
    )
    assert f"pieces of up to {MOST_BYTES} bytes" in TEXT
    assert f"Of more than some {MOST_PIECES:,} pieces" in TEXT
    assert f"passages\nof some {PIECES_A_PASSAGE} pieces" in TEXT
    assert f"Fewer than {LEAST_GROUPS} texts" in TEXT
    assert f"a class of fewer than {LEAST_CLASS_ROWS} rows" in TEXT


def test_tasks_doc_s_rows_of_periods_have_the_hazards_that_they_are_of():
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "def person_periods" in block)
    made: dict[str, Any] = {}
    exec(block, made)
    random, persons = np.random.default_rng(0), 100_000
    # A third of all in each period of 30 days, on any of its days; somebody is lost on any of 120 days.
    event = (random.geometric(1 / 3, persons) - 1) * 30 + random.integers(0, 30, persons)
    lost = random.integers(0, 120, persons)
    seen = pd.DataFrame(
        {"person": range(persons), "followed": np.minimum(event, lost), "event": (event <= lost) * 1, "age": 50}
    )
    rows = made["person_periods"](seen, 30)
    assert list(rows.columns) == ["person", "age", "period", "now", "seen"]
    assert rows["now"].sum() == seen["event"].sum()
    assert rows["seen"].between(0, 1, inclusive="right").all()
    # Nobody goes on after the event.
    assert (rows.groupby("person")["now"].agg(["sum", "last"]).diff(axis=1)["last"] == 0).all()

    def hazards(rows: pd.DataFrame) -> pd.Series:
        weighed = (rows["now"] * rows["seen"]).groupby(rows["period"]).sum()
        return weighed / rows.groupby("period")["seen"].sum()

    assert hazards(rows)[:3].between(0.32, 0.345).all()
    # As the text says of both other ways.
    assert hazards(rows[rows["seen"] == 1])[:3:2].tolist() == pytest.approx([0.37, 0.43], abs=0.015)
    assert hazards(rows.assign(seen=1.0))[:3:2].tolist() == pytest.approx([0.29, 0.25], abs=0.015)
