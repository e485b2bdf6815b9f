"""What of the code decides a step: what its entries import, and nothing that only shows, words or stands beside."""

import importlib
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest
import toy_jobs

from trainworthy.lifecycle import code_identity, sources
from trainworthy.lifecycle.code_identity import (
    ENTRIES,
    ENTRY_OF_JOB,
    LEFT_OUT,
    OURS,
    PRODUCT,
    WORKER,
    CodeOnDisk,
    refuse_unhashed,
    step_code_sha256,
)
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.protocol.jobs import PredictJob, PreflightJob, ServingJob, TrainJob
from trainworthy.lifecycle.protocol.records import STAGES, STEPS, Step
from trainworthy.lifecycle.sources import Source, Sources, read_source

WORKER_STEPS = {"preflight", *STAGES, "evaluation", "promotion"}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The product's sources in another folder, to be changed, and the file that remembers what was parsed."""
    folder = tmp_path_factory.mktemp("product")
    for package in (*code_identity.PACKAGES, "src"):
        shutil.copytree(PRODUCT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def product(copied, monkeypatch):
    monkeypatch.setattr(code_identity, "PRODUCT", copied)
    return copied


def hashes(product: Path, use_case: Path = toy_jobs.TOY) -> dict[str, str]:
    found = CodeOnDisk(product / "sources.json")
    return {step: found.step(use_case, step) for step in STEPS}


def changed_by(product: Path, name: str, old: str, new: str) -> set[str]:
    """The steps whose code is another after a replacement in a file of the product's copy, which is taken back."""
    path, before = product / name, hashes(product)
    text = path.read_text()
    assert old in text
    try:
        path.write_text(text.replace(old, new, 1))
        after = hashes(product)
    finally:
        path.write_text(text)
    assert hashes(product) == before
    return {step for step in STEPS if before[step] != after[step]}


def test_code_changed_while_the_process_lives_is_noticed(tmp_path):
    (tmp_path / "model.py").write_text("WIDTH = 1\n")
    before = step_code_sha256(tmp_path, "full")
    assert step_code_sha256(tmp_path, "full") == before
    (tmp_path / "model.py").write_text("WIDTH = 2\n")
    assert step_code_sha256(tmp_path, "full") != before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("lifecycle/plan.py", "\nfrom __future__", "\n# A comment.\nfrom __future__", id="comment"),
        pytest.param("lifecycle/plan.py", '"""', '"""Other words. ', id="docstring"),
        pytest.param("lifecycle/plan.py", "\n\n", "\n\n\n\n", id="blank lines"),
        pytest.param("lifecycle/report/render.py", "def ", "OTHER = 1\n\n\ndef ", id="report"),
        pytest.param("lifecycle/report/template.html.j2", "<", "<!-- other --><", id="template"),
        pytest.param("lifecycle/alert.py", "def ", "OTHER = 1\n\n\ndef ", id="no step imports it"),
        pytest.param("assets/metadata.py", "def ", "OTHER = 1\n\n\ndef ", id="shows"),
        pytest.param("resources/mlflow.py", "def ", "OTHER = 1\n\n\ndef ", id="stores"),
        pytest.param("pipeline/cli.py", "def ", "OTHER = 1\n\n\ndef ", id="command line"),
        pytest.param("lifecycle/gates/catalogue.toml", "[", "# A comment.\n[", id="comment in a table"),
        pytest.param("lifecycle/gates/catalogue.toml", 'fix = "', 'fix = "Other words. ', id="words in a table"),
    ],
)
def test_what_decides_nothing_keeps_every_identity(product, name, old, new):
    assert changed_by(product, name, old, new) == set()


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("lifecycle/evaluation/prediction_drift.py", {"evaluation"}),
        ("lifecycle/data/backfill.py", {"dataset"}),
        ("lifecycle/leakage/null_mask.py", {"snapshot", "preflight"}),
        ("lifecycle/engine/preflight/run.py", {"preflight"}),
        ("lifecycle/engine/training/judging/progress.py", {"preflight", *STAGES, "promotion"}),
        ("lifecycle/promotion/controls.py", {"promotion"}),
        ("lifecycle/promotion/decide.py", {"preflight", "promotion"}),
        ("lifecycle/worker.py", WORKER_STEPS),
        ("lifecycle/identity.py", set(STEPS)),
    ],
)
def test_changed_module_changes_the_steps_that_use_it(product, name, steps):
    assert changed_by(product, name, "def ", "OTHER = 1\n\n\ndef ") == steps


def test_severity_in_a_table_changes_the_steps_that_read_it(product):
    assert "preflight" in changed_by(product, "lifecycle/gates/catalogue.toml", '"warning"', '"critical"')


def test_module_that_a_use_case_imports_is_part_of_the_steps_that_run_it(product, tmp_path):
    (tmp_path / "model.py").write_text("def build():\n    from lifecycle.alert import Alert\n")
    before = hashes(product, tmp_path)
    path = product / "lifecycle/alert.py"
    text = path.read_text()
    try:
        path.write_text(text.replace("def ", "OTHER = 1\n\n\ndef ", 1))
        after = hashes(product, tmp_path)
    finally:
        path.write_text(text)
    assert {step for step in STEPS if before[step] != after[step]} == WORKER_STEPS


def test_version_of_an_imported_package_changes_its_steps_alone(monkeypatch):
    code = CodeOnDisk().of(ENTRIES["snapshot"])
    assert "torch" not in code.packages
    assert "dagster" not in code.packages
    assert {"pandas", "pyarrow", "numpy", "great-expectations"} <= set(code.packages)
    assert "torch" in CodeOnDisk().of(ENTRIES["full"]).packages
    before = code.sha256
    code_identity._versions.cache_clear()
    monkeypatch.setattr(
        code_identity, "_version", lambda name: "0.1" if name == "polars" else code.packages.get(name, "1")
    )
    after = CodeOnDisk().of(ENTRIES["snapshot"])
    code_identity._versions.cache_clear()
    assert after.packages["polars"] == "0.1"
    assert after.sha256 != before


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import trainworthy.a.b", ("trainworthy.a.b",)),
        ("def f():\n    from trainworthy.a import b, c", ("trainworthy.a.b", "trainworthy.a.c")),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import trainworthy.a\nelse:\n    import torch",
            ("torch",),
        ),
        ("import typing\nif typing.TYPE_CHECKING:\n    import trainworthy.a", ()),
        ("try:\n    import scipy.stats\nexcept ImportError:\n    import json", ("scipy.stats",)),
        ("from . import other", ("trainworthy.own.other",)),
        ("from ..more import other", ("trainworthy.more.other",)),
        ("class A:\n    def f(self):\n        import polars as pl", ("polars",)),
    ],
)
def test_imports_are_read_off_the_source(text, imports):
    assert read_source(text.encode(), package="trainworthy.own").imports == imports


def test_tokens_count_and_comments_do_not():
    plain = read_source(b"def f(x):\n    return x + 1\n")
    words = b'# -*- coding: utf-8 -*-\ndef f(x):  # why\n  "Adds, \xc3\xa4."\n\n  return x + 1\n'
    assert read_source(words).sha256 == plain.sha256
    assert read_source(b"def f(x):\n    return x + 2\n").sha256 != plain.sha256
    assert read_source(b"def f(x):\n    'a'; return 'b'\n").sha256 != read_source(b"def f(x):\n    return 'c'\n").sha256
    assert read_source(b"def f(:\n") == Source(read_source(b"def f(:\n").sha256, ())


def test_each_step_covers_the_jobs_that_it_sends():
    code = CodeOnDisk()
    sent: dict[Step, tuple[type, ...]] = {
        "preflight": (PreflightJob,),
        "evaluation": (PredictJob,),
        "promotion": (PredictJob, ServingJob, TrainJob),
    }
    sent |= {stage: (TrainJob,) for stage in STAGES}
    for step, jobs in sent.items():
        modules = code.of(ENTRIES[step]).modules
        for job in jobs:
            assert set(code.of((WORKER, ENTRY_OF_JOB[job])).modules) <= set(modules), (step, job)


def test_every_name_that_is_left_out_is_there():
    files = code_identity._product_files()
    assert [name for name in (*LEFT_OUT, *ENTRY_OF_JOB.values(), WORKER) if name not in files] == []


def test_worker_that_loaded_what_no_identity_covers_is_refused(tmp_path):
    job = toy_jobs.train_job(tmp_path, tmp_path)
    covered = CodeOnDisk().modules_of(job)
    refuse_unhashed(job, [OURS, WORKER, f"{OURS}.lifecycle.engine.train"], covered)
    with pytest.raises(WorkerError, match=r"not part of the step's identity") as caught:
        refuse_unhashed(job, [WORKER, f"{OURS}.lifecycle.alert"], covered)
    assert caught.value.value == f"{OURS}.lifecycle.alert"
    assert "import statement" in caught.value.fix
    with pytest.raises(WorkerError, match="did not say which modules"):
        refuse_unhashed(job, None, covered)


def test_what_was_parsed_is_remembered_until_the_file_changes(product, tmp_path, monkeypatch):
    kept = tmp_path / "state" / "code" / "sources.json"
    first = CodeOnDisk(kept).of(ENTRIES["snapshot"])
    assert first.tables
    monkeypatch.setattr(sources, "_in_memory", {})
    with monkeypatch.context() as parsing:
        for parser in ("read_source", "_read_table"):
            parsing.setattr(sources, parser, lambda *_, **__: pytest.fail("was parsed before"))
        assert CodeOnDisk(kept).of(ENTRIES["snapshot"]) == first
    kept.write_text("{")
    monkeypatch.setattr(sources, "_in_memory", {})
    assert CodeOnDisk(kept).of(ENTRIES["snapshot"]) == first


def test_table_is_no_source_of_a_package_of_any_name(tmp_path):
    read, path = Sources(None), tmp_path / "empty"
    path.touch()
    assert read(path, package="table").sha256 != read.table(path)


def test_what_another_reading_has_kept_is_parsed_anew(tmp_path, monkeypatch):
    table, kept = tmp_path / "table.toml", tmp_path / "kept.json"
    table.write_text('fix = "words"\nseverity = 1\n')
    first = Sources(kept)
    before = first.table(table)
    first.keep()
    assert kept.exists()
    text = Path(sources.__file__).read_text()
    assert '"fix", ' in text
    (tmp_path / "sources_that_read_fixes.py").write_text(text.replace('"fix", ', ""))
    monkeypatch.syspath_prepend(tmp_path)
    changed = importlib.import_module("sources_that_read_fixes")
    monkeypatch.delitem(sys.modules, "sources_that_read_fixes")
    assert changed.Sources(kept).table(table) != before


def test_state_folder_that_takes_no_file_only_costs_time(product, tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert CodeOnDisk(tmp_path / "file" / "code" / "sources.json").of(ENTRIES["dataset"]).modules


def test_digit_changed_within_a_source_of_the_same_size_and_time_is_noticed(tmp_path):
    path, kept = tmp_path / "model.py", tmp_path / "sources.json"
    path.write_text("RATE = 0.5\n")
    before, time = step_code_sha256(tmp_path, "full", kept), path.stat().st_mtime_ns
    path.write_text("RATE = 0.9\n")
    os.utime(path, ns=(time, time))
    assert step_code_sha256(tmp_path, "full", kept) != before


def test_versions_are_those_that_the_packages_say():
    packages = CodeOnDisk().of(ENTRIES["promotion"]).packages
    names = [name for name in packages if packages[name] != "not installed"]
    assert {name: packages[name] for name in names} == {name: metadata.version(name) for name in names}
    assert {"torch", "numpy", "pandas"} <= set(names)


@pytest.mark.parametrize("statement", ["import toolkit", "def f():\n    from toolkit.parts import g"])
def test_version_of_a_package_that_only_the_use_case_imports_counts(tmp_path, monkeypatch, statement):
    (tmp_path / "model.py").write_text(f"{statement}\n")
    found, known = [], code_identity._version
    for version in ("1.0", "2.0"):
        code_identity._versions.cache_clear()
        told = lambda name, version=version: version if name == "toolkit" else known(name)
        monkeypatch.setattr(code_identity, "_version", told)
        found.append((step_code_sha256(tmp_path, "full"), step_code_sha256(tmp_path, "snapshot")))
    code_identity._versions.cache_clear()
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


def test_package_that_no_distribution_has_counts_by_its_sources(tmp_path, monkeypatch):
    (tmp_path / "use_case").mkdir()
    (tmp_path / "use_case" / "model.py").write_text("import ours_shared\nimport sklearn\n")
    (tmp_path / "ours_shared").mkdir()
    (tmp_path / "ours_shared" / "__init__.py").write_text("WIDTH = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = step_code_sha256(tmp_path / "use_case", "full")
    (tmp_path / "ours_shared" / "__init__.py").write_text("WIDTH = 2\n")
    code_identity._versions.cache_clear()
    assert step_code_sha256(tmp_path / "use_case", "full") != before


def test_use_case_beside_another_counts_what_it_imports_from_there_and_no_more(tmp_path):
    folder = tmp_path / "use_cases" / "mine"
    for name in ("mine", "other"):
        (tmp_path / "use_cases" / name).mkdir(parents=True)
        (tmp_path / "use_cases" / name / "model.py").write_text("WIDTH = 1\n")
    (tmp_path / "use_cases" / "shared.py").write_text("DEPTH = 1\n")
    (folder / "model.py").write_text("from use_cases.mine import parts\nfrom use_cases.shared import DEPTH\n")
    before = step_code_sha256(folder, "full")
    (tmp_path / "use_cases" / "other" / "model.py").write_text("WIDTH = 2\n")
    assert step_code_sha256(folder, "full") == before
    (tmp_path / "use_cases" / "shared.py").write_text("DEPTH = 2\n")
    assert step_code_sha256(folder, "full") != before
    (tmp_path / "use_cases" / "shared.py").write_text("from use_cases.deeper import DEPTH\n")
    (tmp_path / "use_cases" / "deeper.py").write_text("DEPTH = 2\n")
    before = step_code_sha256(folder, "full")
    (tmp_path / "use_cases" / "deeper.py").write_text("DEPTH = 3\n")
    assert step_code_sha256(folder, "full") != before


def test_package_by_whose_name_a_folder_above_the_use_case_is_called_still_counts(tmp_path, monkeypatch):
    folder = tmp_path / "toolkit" / "mine"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("import toolkit\n")
    found, known = [], code_identity._version
    for version in ("1.0", "2.0"):
        code_identity._versions.cache_clear()
        told = lambda name, version=version: version if name == "toolkit" else known(name)
        monkeypatch.setattr(code_identity, "_version", told)
        found.append(step_code_sha256(folder, "full"))
    code_identity._versions.cache_clear()
    assert found[0] != found[1]


def test_relative_import_within_a_use_case_is_its_own(tmp_path):
    (tmp_path / "model.py").write_text("from .parts import WIDTH\nfrom . import parts\n")
    (tmp_path / "parts.py").write_text("WIDTH = 1\n")
    before = step_code_sha256(tmp_path, "full")
    (tmp_path / "parts.py").write_text("WIDTH = 2\n")
    assert step_code_sha256(tmp_path, "full") != before


@pytest.mark.parametrize("name", ["vocabulary.json", "tables/classes.yaml", "weights.safetensors"])
def test_data_file_beside_the_model_counts_where_the_use_case_runs(product, tmp_path, name):
    use_case = tmp_path / "uses"
    shutil.copytree(toy_jobs.TOY, use_case)
    before = hashes(product, use_case)
    (use_case / name).parent.mkdir(exist_ok=True)
    (use_case / name).write_text("a: 1")
    added = hashes(product, use_case)
    (use_case / name).write_text("a: 2")
    edited = hashes(product, use_case)
    for former, latter in ((before, added), (added, edited)):
        assert {step for step in STEPS if former[step] != latter[step]} == WORKER_STEPS


@pytest.mark.parametrize(
    "name", ["README.md", "look.ipynb", "baseline.yaml", ".gitignore", ".cache/kept.json", "__pycache__/model.pyc"]
)
def test_file_that_no_training_reads_counts_nowhere(product, tmp_path, name):
    use_case = tmp_path / "uses"
    shutil.copytree(toy_jobs.TOY, use_case)
    before = hashes(product, use_case)
    (use_case / name).parent.mkdir(exist_ok=True)
    (use_case / name).write_text("words")
    assert hashes(product, use_case) == before
