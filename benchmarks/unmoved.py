"""Does flight_delays give what it gave before: the code of an earlier commit and this checkout, trained side by side.

The earlier commit is checked out in a temporary folder. Both trees train flight_delays on the same dataset version, by
`experiment_flight_delays` with their own use_case.yaml, code and state folder, in the same environment. Compared are
the rows of each split, the parameters and validation losses of every stage, and of the model that full exports its
weights and its answers to the benchmark's rows. On one machine all should be equal bit by bit.

    make bench NAME=unmoved                                          two minutes on 2 idle cores
    python -m benchmarks.unmoved --since 51d800d --version v9        another commit, or more months

A short run trains HEAD beside this checkout, the small demo on a month.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.process import run
from benchmarks.result import arguments, begin, finish
from benchmarks.toy_project import job_command
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import PRODUCT

SINCE, VERSION = "51d800d", "v4"
USE_CASE, SHORT_USE_CASE, STAGES = "flight_delays", "flights_small", ("smoke", "pilot", "full")
TARGETS = {"splits_other": 0.0, "stages_other": 0.0, "losses_other": 0.0, "weights_other": 0.0, "answers_apart": 0.0}

# Run by each tree, so that its own code reads its own artifact. Arguments: artifact, its sha256, rows, where to write.
ANSWER = """
import hashlib, json, sys
from pathlib import Path
import numpy as np, pandas as pd, torch
from trainworthy.lifecycle.artifact import load_artifact
folder, sha256, rows, out = sys.argv[1:]
np.save(out, load_artifact(Path(folder), sha256)(pd.read_parquet(rows)))
weights = torch.export.load(Path(folder) / "model.pt2").state_dict
print(json.dumps({name: hashlib.sha256(one.detach().numpy().tobytes()).hexdigest() for name, one in weights.items()}))
"""


class Trained(NamedTuple):
    """What a tree made: its records of snapshot and stages, the exported weights' hashes, the benchmark's answers."""

    records: dict[str, Any]
    weights: dict[str, str]
    answers: np.ndarray


def main() -> None:
    """A line for each thing compared, equal or not."""
    parser = arguments(__doc__)
    parser.add_argument("--since", default=SINCE, help=f"the earlier commit; default {SINCE}")
    parser.add_argument("--version", default=VERSION, help=f"of the dataset flights; default {VERSION}")
    given = parser.parse_args()
    begin(given.short)
    since, use_case = ("HEAD", SHORT_USE_CASE) if given.short else (given.since, USE_CASE)
    version = published(use_case) if given.short else given.version
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with worktree(since, folder / "earlier") as earlier:
            before = trained(earlier, folder / "before", use_case, version)
        now = trained(PRODUCT, folder / "now", use_case, version)
    print(f"{use_case} at {version}: {since} and this checkout")
    finish("unmoved", differences(before, now), TARGETS, short=given.short, zero_allowed=tuple(TARGETS))


@contextlib.contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """The files of a commit in `folder`. Fails with git's words where the history does not hold it."""
    git = ["git", "-C", str(PRODUCT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def published(use_case: str) -> str:
    """The dataset version that the use case declares."""
    return load_use_case(PRODUCT / "use_cases" / use_case).spec.dataset.version


def trained(tree: Path, state: Path, use_case: str, version: str) -> Trained:
    """Train by the tree's code into the new folder `state`; the training must end well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINWORTHY_", "DAGSTER_HOME"))}
    environment = kept | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "TRAINWORTHY_VAR": str(state)}
    state.mkdir()
    where = in_its_names(tree, "import trainworthy.lifecycle; print(trainworthy.lifecycle.__file__)")
    found = _said([sys.executable, "-c", *where], environment, tree)
    assert Path(found.strip()).resolve() == tree.resolve() / "lifecycle" / "__init__.py", f"{found} is not of {tree}"
    (config := state / "run.json").write_text(
        json.dumps({"resources": {"intent": {"config": {"dataset_version": version}}}})
    )
    run(in_its_names(tree, *job_command(f"experiment_{use_case}", "-c", str(config))), environment, tree)
    records = _records(state, use_case)
    full, rows = records["full"], records["snapshot"]["splits"]["benchmark"]["file"]["path"]
    out = state / "answers.npy"
    command = [
        sys.executable,
        "-c",
        *in_its_names(tree, ANSWER),
        str(state / full["artifact"]),
        full["artifact_sha256"],
        str(state / rows),
    ]
    weights = _said([*command, str(out)], environment, tree)
    return Trained(records, json.loads(weights.splitlines()[-1]), np.load(out))


def in_its_names(tree: Path, *words: str) -> list[str]:
    """The words of a command, for a tree from before all was imported as trainworthy with its names of packages."""
    if (tree / "src").is_dir():
        return list(words)
    return [
        word.replace("trainworthy.lifecycle", "lifecycle").replace("trainworthy.pipeline", "pipeline") for word in words
    ]


def _records(state: Path, use_case: str) -> dict[str, Any]:
    """The newest record of each step as JSON: what an earlier commit wrote, this one need not be able to read."""
    folder = state / "records" / use_case
    (run_folder,) = (folder / "runs").iterdir()
    names = {path.name: path.read_text().strip() for path in run_folder.iterdir()}
    return {step: json.loads((folder / "objects" / f"{name}.json").read_text()) for step, name in names.items()}


def _said(command: list[str], environment: dict[str, str], tree: Path) -> str:
    return subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True).stdout


def differences(before: Trained, now: Trained) -> dict[str, float]:
    """How many of each differ, and by how much the answers do at most; a line is printed for each comparison."""
    hashes = [
        {name: one["file"]["sha256"] for name, one in tree.records["snapshot"]["splits"].items()}
        for tree in (before, now)
    ]
    splits = _other("rows of", *hashes)
    stages = [{stage: tree.records[stage]["parameters_sha256"] for stage in STAGES} for tree in (before, now)]
    losses = [{stage: tree.records[stage]["metrics"]["val_loss"] for stage in STAGES} for tree in (before, now)]
    apart = _largest(before.answers, now.answers)
    bits = "bit by bit" if before.answers.tobytes() == now.answers.tobytes() else "MISS: not bit by bit"
    figures = {
        "splits_other": splits, "stages_other": _other("parameters after", *stages),
        "losses_other": _other("validation loss of", *losses),
        "weights_other": _other("exported", before.weights, now.weights),
        "answers_apart": apart,
    }  # fmt: skip
    print(f"answers to {len(now.answers):,} benchmark rows: apart by at most {apart:.3g}, {bits}")
    return {name: float(value) for name, value in figures.items()}


def _other(what: str, before: dict[str, Any], now: dict[str, Any]) -> int:
    """Print each, and count those that differ or that one side lacks."""
    names = list(dict.fromkeys([*before, *now]))
    other = [name for name in names if before.get(name) != now.get(name)]
    for name in names:
        value = _short(now.get(name))
        print(
            f"{what} {name}: "
            + (f"MISS: {_short(before.get(name))}, now {value}" if name in other else f"equal, {value}")
        )
    return len(other)


def _short(value: object) -> str:
    return value[:12] if isinstance(value, str) else repr(value)


def _largest(before: np.ndarray, now: np.ndarray) -> float:
    """The largest difference; that of other rows is none that could be told, and counts as 1."""
    return float(np.abs(before - now).max()) if before.shape == now.shape else 1.0


if __name__ == "__main__":
    main()
