from pathlib import Path

import pytest
import toy_jobs

from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.other_process import CHECKS, asked
from trainworthy.lifecycle.engine.preflight.process_bound import process_bound
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.task import load_task

SHOPS = 'SHOPS = ["north", "south", "west"]'
CODES = 'shops = rows["shop"].map({name: i + 1 for i, name in enumerate(SHOPS)}).fillna(0)'
HASHED = 'shops = rows["shop"].map(lambda name: hash(name) % 1000)'
EMBEDDING = "self.shop = nn.Embedding(len(SHOPS) + 1, 2)"
IN_THE_ORDER_OF_A_SET = (
    f"self.made = nn.ModuleDict({{name: nn.Linear(2, 2) for name in set('abcdefghijk')}})\n        {EMBEDDING}"
)


def tried(splits: Path, folder: Path, *changes: tuple[str, str]) -> Trial:
    """The check of the toy with its code changed."""
    use_case = toy_jobs.changed_use_case(folder / "toy", *changes)
    job = toy_jobs.preflight_job(splits, folder / "out", use_case=use_case)
    (folder / "out").mkdir()
    with asked(job, load_task(use_case), parameters=1000) as other:
        (trial,) = run_checks(CHECKS, other, device="cpu", not_applicable={})
    assert list((folder / "out").iterdir()) == []
    return trial


def test_codes_by_hash_and_weights_in_the_order_of_a_set_are_found(splits, tmp_path):
    trial = tried(splits, tmp_path, (CODES, HASHED), (EMBEDDING, IN_THE_ORDER_OF_A_SET))
    assert trial.status == "fail"
    assert "input shop differs in 100% of its rows" in trial.evidence
    assert "weight made." in trial.evidence
    assert "input numbers" not in trial.evidence
    assert "hash() of a text" in trial.cause


def test_a_sorted_set_is_the_same_elsewhere(splits, tmp_path):
    trial = tried(splits, tmp_path, (SHOPS, 'SHOPS = sorted({"north", "south", "west"})'))
    assert (trial.status, trial.evidence) == (
        "pass",
        "2 tensors of inputs and 5 tensors of weights from 256 rows, made again in another process, are the same",
    )  # fmt: skip


def test_code_that_only_one_process_can_run_is_found(splits, tmp_path):
    only_here = f"import os\n\nassert os.environ.get('PYTHONHASHSEED') not in ('1', '2')\n{SHOPS}"
    trial = tried(splits, tmp_path, (SHOPS, only_here))
    assert trial.status == "fail"
    assert "another could not: it ended with 1" in trial.evidence


def test_plain_code_starts_no_process(splits, tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy")
    job = toy_jobs.preflight_job(splits, tmp_path / "out", use_case=use_case)
    with asked(job, load_task(use_case), parameters=1000) as other:
        assert other.process is None
        (trial,) = run_checks(CHECKS, other, device="cpu", not_applicable={})
    assert trial.status == "not_applicable"


def test_rows_that_alone_cannot_be_prepared_are_left_to_other_checks(splits, tmp_path):
    refuses = "numbers = [1 / (len(rows) != 256) for _ in '']\n    " + CODES
    changes = (SHOPS, f"{SHOPS}\nUSED = set(SHOPS)"), (CODES, refuses.replace("for _ in ''", "for _ in 'a'"))
    trial = tried(splits, tmp_path, *changes)
    assert trial.status == "not_applicable"
    assert "division by zero" in trial.evidence


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch\nfrom pathlib import Path", ()),
        ("codes = {'a': 1}", ()),
        ("codes = [hash(name) for name in names]", ("model.py: hash",)),
        ("codes = list({*names})", ("model.py: a set",)),
        ("import sklearn.preprocessing", ("model.py: sklearn",)),
        ("from datetime import date\ntoday = date.today()", ("model.py: datetime", "model.py: today")),
        ("from .layers import Body", ("layers.py: default_rng",)),
        ("from . import layers", ("layers.py: default_rng",)),
        ("from use_cases.one import layers", ("layers.py: default_rng",)),
        # A package, and a module elsewhere of its name: of equal names all are looked at.
        ("from .parts import codes", ("__init__.py: hash", "parts.py: a set")),
    ],
)
def test_what_may_come_out_otherwise_is_named(tmp_path, code, found):
    (tmp_path / "model.py").write_text(code)
    (tmp_path / "layers.py").write_text("import numpy as np\nnoise = np.random.default_rng().normal(size=3)")
    for name, text in {"parts/__init__.py": "codes = hash('a')", "other/parts.py": "codes = list({1, 2})"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (tmp_path / "dataset.py").write_text("import time\nmade_at = time.time()")
    assert sorted(process_bound(tmp_path)) == sorted(found)
