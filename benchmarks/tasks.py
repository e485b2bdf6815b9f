"""Planted mistakes and odd healthy variants of each kind of task, run as a user runs them.

Hosts are the use cases flight_delays (binary), digits (ten classes) and arrival_delay (two quantiles), of flights
20,000 of four months; what `trainworthy new` drafts for generated rents (a number), for a year of hourly weather
(five labels of three hours later) and for small pictures of two shapes (masks); and benchmarks/topics, a transformer of
the next byte of sentences. Each case is a copy of a host with some lines of its files exchanged, or with another
dataset version, and is run by `experiment_<use_case>` in a process of its own, from the dataset to the full stage
(benchmarks/tasks_cases.py, tasks_rows.py, tasks_pictures.py and tasks_texts.py).

A mistake counts as found if a check stops the run, and its cause as right if what the first such check says matches the
words beside it. One that is a warning alone counts as missed, and is told. A healthy variant must end well. Who planted
the mistakes knows the checks: found here is more than would be found of others'.

    make bench NAME=tasks                                            one seed, an hour or two on 2 idle cores
    python -m benchmarks.tasks --seeds 3                             three times as long
    python -m benchmarks.tasks --kinds binary multiclass             some kinds
    python -m benchmarks.tasks --cases "labels shuffled"             cases whose names match
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import beta

from benchmarks.result import arguments, begin, finish
from benchmarks.tasks_cases import HEALTHY, HOSTS, PLANTED, YAML, Case, Change, Host
from benchmarks.tasks_pictures import stored
from benchmarks.tasks_rows import Rows
from benchmarks.toy_project import committed, job_command
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_rows
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.settings import PRODUCT

TARGETS = {"missed_share": 0.1, "wrong_cause_share": 0.25, "healthy_stopped": 0.0}
SECONDS = 600


class Ended(NamedTuple):
    """Whether the run ended well, the checks that stopped it in the order of the steps, and its warnings."""

    well: bool
    stopped_by: tuple[CheckResult, ...] = ()
    warnings: tuple[CheckResult, ...] = ()


class Counts(NamedTuple):
    """What came of the cases of one kind."""

    planted: int = 0
    found: int = 0
    right: int = 0
    warned: int = 0
    healthy: int = 0
    stopped: int = 0


class Bench:
    """A project with every host as it is, one state folder, and the tables of the hosts that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.root, self.state, self.kept = folder / "project", folder / "state", folder / "kept"
        self.environment = {
            **os.environ, "PYTHONPATH": str(PRODUCT / "src"), "TRAINWORTHY_VAR": str(self.state),
            "TRAINWORTHY_USE_CASES": str(self.root / "use_cases"),
        }  # fmt: skip
        self._rows: dict[str, Rows] = {}
        self._published_cases = 0
        skipped = shutil.ignore_patterns("__pycache__", "flights", "digits")
        shutil.copytree(PRODUCT / "data", self.root / "data", ignore=skipped)
        shutil.copytree(PRODUCT / "use_cases", self.root / "use_cases", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PRODUCT / "dvc.yaml", self.root)
        committed(self.root)

    def rows(self, name: str) -> Rows:
        """The table of a host: when first asked for it is made, published, and named in the host's files."""
        if name not in self._rows:
            host, folder = HOSTS[name], self.root / "use_cases" / name
            frame = self._made(host, name, folder)
            changed(folder, (*host.changes, self._published(f"{name}_rows", frame, folder)))
            shutil.copytree(folder, self.kept / name)
            spec, contract = load_use_case(folder).spec, load_contract(folder / "contract.yaml")
            # Arrays are no files yet; a split by group asks no label.
            labelled = frame if contract.label.type == "mask" else with_label(frame, contract.label)
            splits = split_rows(labelled, spec.split, contract)
            self._rows[name] = Rows(frame, {split: rows.index for split, rows in splits.items()})
        return self._rows[name]

    def _made(self, host: Host, name: str, folder: Path) -> pd.DataFrame:
        """The host's table, with its use case in `folder`."""
        if host.files is not None and host.made is not None:
            shutil.copytree(host.files, folder)
            return host.made()
        if host.made is not None:
            self._trainworthy("new", name, "--data", str(self._written(host.made(), name)), *host.options)
        dataset, version = host.dataset if host.made is None else (name, "v1")
        return host.rows(DatasetStore(self.state).fetch(self.root, dataset, version, self.state / "datasets").path)

    def run(self, case: Case, seed: int) -> Ended:
        """The host with the case's changes, run by its experiment to its end."""
        rows, folder = self.rows(case.host), self.root / "use_cases" / case.host
        shutil.rmtree(folder)
        shutil.copytree(self.kept / case.host, folder)
        changes = (*case.changes, (YAML, "  seed: 0", f"  seed: {seed}"))
        if case.rows is not None:
            frame = case.rows(rows, np.random.default_rng(seed))
            self._published_cases += 1
            changes = (*changes, self._published(f"{case.host}_{self._published_cases}", frame, folder))
        changed(folder, changes)
        before = set(self._run_ids(case.host))
        command = job_command(f"experiment_{case.host}")
        try:
            done = subprocess.run(
                command, env=self.environment, cwd=PRODUCT, capture_output=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return Ended(well=False)
        made = set(self._run_ids(case.host)) - before
        if not made:
            # The code location did not load, or the dataset could not be fetched: no case of ours.
            raise RuntimeError(f"{case.host}, {case.name}: no record\n{done.stderr.decode(errors='replace')[-2000:]}")
        (run_id,) = made
        store = StateRecords(FolderState(self.state))
        records = [record for step in STEPS if (record := store.of_run(case.host, step, run_id)) is not None]
        checks = [check for record in records for check in record.checks]
        # What failed before what could not be tried for it.
        stopping = sorted((check for check in checks if check.stops), key=lambda check: check.status == "insufficient")
        warnings = [check for check in checks if check.status == "fail" and not check.stops]
        return Ended(done.returncode == 0, tuple(stopping), tuple(warnings))

    def _run_ids(self, use_case: str) -> list[str]:
        return StateRecords(FolderState(self.state)).run_ids(use_case) if self.state.is_dir() else []

    def _published(self, name: str, frame: pd.DataFrame, folder: Path) -> Change:
        """Publish the table as v1 of a dataset of its own; the change that lets the use case train on it."""
        source = self.root.parent / "tables" / name
        source.mkdir(parents=True)
        stored(frame, source).to_parquet(source / "part-0001.parquet", index=False)
        self._trainworthy("datasets", "publish", name, "v1", "--from", str(source))
        (line,) = re.findall(r"^dataset: .*$", (folder / YAML).read_text(), re.MULTILINE)
        return YAML, line, f"dataset: {{name: {name}, version: v1}}"

    def _written(self, frame: pd.DataFrame, name: str) -> Path:
        """What `new` reads: a table, or a folder with images/ and masks/."""
        if "mask" not in frame:
            frame.to_parquet(source := self.root.parent / f"{name}.parquet", index=False)
            return source
        stored(frame, source := self.root.parent / "drafted" / name)
        return source / "files"

    def _trainworthy(self, *words: str) -> None:
        command = [sys.executable, "-m", "trainworthy.pipeline.cli", *words]
        done = subprocess.run(command, env=self.environment, cwd=PRODUCT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def changed(folder: Path, changes: Sequence[Change]) -> None:
    """Exchange words in files of the folder. What a change looks for has to be there."""
    for name, old, new in changes:
        text = (folder / name).read_text()
        assert old in text, f"{folder.name}: {name} has no {old}"
        (folder / name).write_text(text.replace(old, new))


def main() -> None:
    """A line a case, then the shares of each kind with their 95 % bounds."""
    parser = arguments(__doc__)
    kinds = [host.kind for host in HOSTS.values()]
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds, help="all if left out")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each case; default 1")
    parser.add_argument("--cases", default="", help="those whose names match this pattern")
    given = parser.parse_args()
    begin(given.short)
    names = [name for name, host in HOSTS.items() if host.kind in (["multiclass"] if given.short else given.kinds)]
    words = "labels shuffled|label smoothing" if given.short else given.cases
    counts: dict[str, Counts] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for name in names:
            cases = [case for case in (*PLANTED, *HEALTHY) if case.host == name and re.search(words, case.name)]
            seen = counts[HOSTS[name].kind] = Counts()
            for case in cases:
                for seed in range(1 if given.short else given.seeds):
                    started = time.perf_counter()
                    ended = bench.run(case, seed)
                    seen = counts[HOSTS[name].kind] = told(case, ended, time.perf_counter() - started, seen)
    for kind, one in counts.items():
        print(f"{kind:11} {in_words(one)}")
    whole = Counts(*map(sum, zip(*counts.values(), strict=True)))
    print(f"{'all':11} {in_words(whole)}")
    figures = {f"{name}_{kind}": value for kind, one in counts.items() for name, value in shares(one).items()}
    targets = {f"{name}_{kind}": bound for kind in counts for name, bound in TARGETS.items()}
    finish("tasks", figures, targets, short=given.short, zero_allowed=tuple(figures))


def told(case: Case, ended: Ended, seconds: float, seen: Counts) -> Counts:
    """Print the case's line; the counts with it."""
    words = _words(ended.stopped_by[0]) if ended.stopped_by else "" if ended.well else "ended without a check"
    line = f"{case.host:14} {case.name:40} {seconds:3.0f} s"
    if not case.cause:
        print(f"healthy  {line} {'passed' if ended.well else 'STOPPED':7} {words[:400]}", flush=True)
        return seen._replace(healthy=seen.healthy + 1, stopped=seen.stopped + (not ended.well))
    found, right = bool(ended.stopped_by), bool(ended.stopped_by) and _matches(case, words)
    hints = [told for check in ended.warnings if _matches(case, told := _words(check))]
    judged = ("right cause" if right else "other cause") if found else "a warning" if hints else ""
    print(
        f"planted  {line} {'found' if found else 'MISSED':7} {judged:11} {(words or ' '.join(hints))[:400]}", flush=True
    )
    return seen._replace(
        planted=seen.planted + 1, found=seen.found + found, right=seen.right + right,
        warned=seen.warned + (not found and bool(hints)),
    )  # fmt: skip


def shares(one: Counts) -> dict[str, float]:
    """The figures that have targets, as far as there were such cases."""
    found = {"missed_share": one.found, "wrong_cause_share": one.right} if one.planted else {}
    healthy = {"healthy_stopped": float(one.stopped)} if one.healthy else {}
    return {name: 1 - count / one.planted for name, count in found.items()} | healthy


def in_words(one: Counts) -> str:
    """The counts with their exact 95 % bounds (Clopper and Pearson 1934)."""
    found, right = (f"{count} (at least {_low(count, one.planted):.0%})" for count in (one.found, one.right))
    warned = f"of the others {one.warned} a warning"
    high = 1 - _low(one.healthy - one.stopped, one.healthy)
    healthy = f"healthy stopped {one.stopped} of {one.healthy} (at most {high:.0%})"
    return f"planted {one.planted}: found {found}, right cause first {right}, {warned}; {healthy}"


def _matches(case: Case, words: str) -> bool:
    return re.search(case.cause, words, re.IGNORECASE) is not None


def _words(check: CheckResult) -> str:
    """What a check says: the first thing that failed of a family with its cause and fix, else its evidence."""
    failed = next((one for one in check.details if one.get("status") in ("fail", "error")), {})
    told = [str(failed[key]) for key in ("id", "rule", "observed", "evidence", "cause", "fix") if failed.get(key)]
    return " ".join([check.name, *(told or [check.evidence, check.fix])])


def _low(count: int, of: int) -> float:
    """Lower end of the exact 95 % interval."""
    return float(beta.ppf(0.025, count, of - count + 1)) if count else 0.0


if __name__ == "__main__":
    main()
