"""Planted mistakes and odd healthy networks of two kinds of task, run as a user runs them.

Hosts are the use cases digits (ten classes) and arrival_delay (two quantiles; three months of flights). Each case is a
copy of the use case with a few lines of model.py or use_case.yaml exchanged, and is run by `experiment_<use_case>`
in a process of its own, from preflight to the full stage. A mistake counts as found if a check of severity error stops
the run, and its cause as right if what the first such check says matches the words beside it. A healthy one must end
well. One seed. Who planted the mistakes knows the checks: found here is more than would be found of others'.

    make bench NAME=tasks            about fifteen minutes on 2 idle cores
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from scipy.stats import beta

from benchmarks.result import arguments, begin, finish
from benchmarks.toy_project import committed, job_command
from lifecycle.checks import CheckResult
from lifecycle.records import STEPS
from lifecycle.storage.records import FileRecordStore
from lifecycle.storage.state import StateFolder
from resources.settings import PROJECT

TARGETS = {"missed_share": 0.1, "wrong_cause_share": 0.25, "healthy_stopped": 0.0}
SECONDS = 600


class Case(NamedTuple):
    """Replacements in a use case's files; `cause` are words of the true cause, empty for a healthy case."""

    host: str
    name: str
    changes: tuple[tuple[str, str, str], ...]
    cause: str = ""


class Ended(NamedTuple):
    """Whether the run ended well, and the checks that stopped it, in the order of the steps."""

    well: bool
    stopped_by: tuple[CheckResult, ...]


MODEL, YAML = "model.py", "use_case.yaml"
DIGITS_LOSS = 'return nn.functional.cross_entropy(outputs, targets, reduction="none")'
DIGITS_PREDICT = "return outputs.softmax(dim=1)"
DIGITS_AUGMENT = 'return {"picture": moved.unsqueeze(1)}, targets'
DELAY_LOSS = "return torch.maximum(levels * off, (levels - 1) * off).mean(dim=1)"
DELAY_PREDICT = '    """The quantiles as they are, `(N, 2)`."""\n    return outputs'
ROLLED = "def augment(inputs, targets, generator):\n    return inputs, targets.roll(1)\n\n\ndef loss_fn("
DELAY_AUGMENT = (MODEL, "def loss_fn(", ROLLED)
FEW_MONTHS = (YAML, "version: v9", "version: v3")
PLANTED = (
    Case("digits", "softmax twice", ((MODEL, DIGITS_LOSS,
          DIGITS_LOSS.replace("(outputs,", "(outputs.softmax(dim=1),")),), "softmax|squash|probabilit"),
    Case("digits", "labels of other rows", ((MODEL, DIGITS_AUGMENT,
          DIGITS_AUGMENT.replace("targets", "targets.roll(1)")),), "label|augment|row"),
    Case("digits", "classes in another order in predict", ((MODEL, DIGITS_PREDICT, DIGITS_PREDICT + ".flip(1)"),),
         "predict"),
    Case("digits", "a rate near zero", ((YAML, "learning_rate: 0.004", "learning_rate: 1.0e-9"),), "rate"),
    Case("digits", "one loss for the batch", ((MODEL, 'reduction="none"', 'reduction="mean"'),),
         "loss_fn|one loss a row"),
    Case("digits", "outputs without gradient", ((MODEL, 'self.layers(inputs["picture"])',
          'self.layers(inputs["picture"]).detach()'),), "gradient|detach"),
    Case("digits", "inputs of nothing", ((MODEL, 'scaled.astype(np.float32)', '(0 * scaled).astype(np.float32)'),),
         "input|constant|vary"),
    Case("digits", "logits as probabilities", ((MODEL, DIGITS_PREDICT, "return outputs"),), "predict|probabilit"),
    Case("digits", "a loss that ignores the label", ((MODEL, DIGITS_LOSS,
          "return -outputs.log_softmax(dim=1).mean(dim=1)"),), "label|target"),
    Case("arrival_delay", "levels exchanged", ((MODEL, "torch.maximum(levels * off, (levels - 1) * off)",
          "torch.maximum((1 - levels) * off, -levels * off)"),), "predict|quantile|level"),
    Case("arrival_delay", "another unit in predict", ((MODEL, DELAY_PREDICT, DELAY_PREDICT + " / 60"),),
         "predict|unit"),
    Case("arrival_delay", "labels of other rows", (DELAY_AUGMENT,), "label|augment|row"),
    Case("arrival_delay", "quantiles that cross", ((MODEL, DELAY_PREDICT, DELAY_PREDICT + ".flip(1)"),),
         "cross|predict|rising"),
    Case("arrival_delay", "a rate near zero", ((YAML, "learning_rate: 0.003", "learning_rate: 1.0e-9"),), "rate"),
    Case("arrival_delay", "a rate far too high", ((YAML, "learning_rate: 0.003", "learning_rate: 30.0"),), "rate"),
    Case("arrival_delay", "a loss that ignores the label", ((MODEL, "off = targets.unsqueeze(1) - outputs",
          "off = targets.unsqueeze(1) * 0 - outputs"),), "label|target"),
    Case("arrival_delay", "squared error for quantiles", ((MODEL, DELAY_LOSS, "return (off**2).mean(dim=1)"),),
         "predict|quantile|loss"),
    Case("arrival_delay", "inputs of nothing", ((MODEL, "torch.from_numpy(scaled.astype(np.float32))",
          "torch.from_numpy(0 * scaled.astype(np.float32))"),), "input|constant|vary"),
)  # fmt: skip
HEALTHY = (
    Case("digits", "label smoothing", ((MODEL, 'reduction="none"', 'reduction="none", label_smoothing=0.1'),)),
    Case("digits", "class weights", ((YAML, "epochs: 30", "epochs: 30\n  class_weights: balanced"),)),
    Case("digits", "SGD", ((YAML, "{name: adamw, learning_rate: 0.004, weight_decay: 0.01}",
          "{name: sgd, learning_rate: 0.1, weight_decay: 0.0001}"),)),
    Case("digits", "batch norm", ((MODEL, "nn.Conv2d(1, channels, 3, padding=1), nn.SiLU(),",
          "nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.SiLU(),"),)),
    Case("digits", "no augmentation, one layer", ((MODEL, "def augment(", "def moved("),
          (MODEL, "nn.Linear(2 * channels * (SIDE // 2) ** 2, width), nn.SiLU(),",
           "nn.Linear(2 * channels * (SIDE // 2) ** 2, width),"))),
    Case("arrival_delay", "as it is", ()),
    Case("arrival_delay", "wide and small batches", ((YAML, "width: 96", "width: 256"),
          (YAML, "batch_size: 1024", "batch_size: 256"))),
    Case("arrival_delay", "rounded pinball", ((MODEL, DELAY_LOSS,
          "return (levels * off + 3 * nn.functional.softplus(-off / 3)).mean(dim=1)"),)),
    Case("arrival_delay", "starting at zero minutes", ((MODEL, 'float(target["quantiles"]["0.5"])', "0.0"),)),
    Case("arrival_delay", "no embeddings to speak of", ((YAML, "embedding_dim: 8", "embedding_dim: 1"),)),
)  # fmt: skip


def main() -> None:
    """A line a case, then the shares with their 95 % bounds."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    planted, healthy = (PLANTED[3:4], HEALTHY[:1]) if short else (PLANTED, HEALTHY)
    with tempfile.TemporaryDirectory() as folder:
        root = _project(Path(folder))
        found = right = 0
        for case in planted:
            ended = run_case(case, root)
            words = _words(ended.stopped_by[0]) if ended.stopped_by else ""
            is_right = bool(re.search(case.cause, words, re.IGNORECASE))
            found, right = found + bool(ended.stopped_by), right + is_right
            judged = "right cause" if is_right else "other cause" if words else ""
            print(f"planted  {_line(case)} {'found' if words else 'MISSED':7} {judged} {words[:150]}", flush=True)
        stopped = 0
        for case in healthy:
            ended = run_case(case, root)
            stopped += not ended.well
            words = _words(ended.stopped_by[0]) if ended.stopped_by else "" if ended.well else "ended without a check"
            print(f"healthy  {_line(case)} {'passed' if ended.well else 'STOPPED':7} {words[:200]}", flush=True)
    lows = [f"at least {_low(count, len(planted)):.0%} with 95 %" for count in (found, right)]
    print(f"found {found} of {len(planted)} ({lows[0]}), right cause first {right} ({lows[1]})")
    print(f"healthy stopped {stopped} of {len(healthy)}")
    figures = {
        "planted": len(planted), "healthy": len(healthy), "missed_share": 1 - found / len(planted),
        "wrong_cause_share": 1 - right / len(planted), "healthy_stopped": float(stopped),
    }  # fmt: skip
    finish("tasks", figures, TARGETS, short=short, zero_allowed=tuple(TARGETS))


def run_case(case: Case, root: Path) -> Ended:
    """Change the host's files, run its experiment, and put them back; how it ended."""
    folder, kept = root / "use_cases" / case.host, root / "kept" / case.host
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    for name, old, new in (*case.changes, *((FEW_MONTHS,) if case.host == "arrival_delay" else ())):
        text = (folder / name).read_text()
        assert old in text, f"{case.name}: {old}"
        (folder / name).write_text(text.replace(old, new))
    state = root.parent / "state"
    environment = {
        **os.environ, "PYTHONPATH": str(PROJECT), "TRAINWORTHY_VAR": str(state),
        "TRAINWORTHY_USE_CASES": str(root / "use_cases"),
    }  # fmt: skip
    before = set(_runs(state, case.host))
    command = job_command(f"experiment_{case.host}")
    done = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, timeout=SECONDS, check=False)
    made = set(_runs(state, case.host)) - before
    if not made:
        # The code location did not load, or the dataset could not be fetched: no case of ours.
        raise RuntimeError(f"{case.host}, {case.name}: no record\n{done.stderr.decode(errors='replace')[-2000:]}")
    (run_id,) = made
    store = FileRecordStore(StateFolder(state))
    records = [record for step in STEPS if (record := store.of_run(case.host, step, run_id)) is not None]
    stopping = [check for record in records for check in record.checks if check.stops]
    # What failed before what could not be tried for it.
    return Ended(done.returncode == 0, tuple(sorted(stopping, key=lambda check: check.status == "insufficient")))


def _runs(state: Path, use_case: str) -> list[str]:
    return FileRecordStore(StateFolder(state)).run_ids(use_case) if state.is_dir() else []


def _project(folder: Path) -> Path:
    """This repository's use cases and datasets as a project of its own, and its use cases once more as they are."""
    root = folder / "project"
    for name in ("use_cases", "data"):
        shutil.copytree(PROJECT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "flights", "digits"))
    shutil.copytree(PROJECT / "use_cases" / "digits", root / "use_cases" / "digits", dirs_exist_ok=True)
    shutil.copy(PROJECT / "dvc.yaml", root)
    shutil.copytree(root / "use_cases", root / "kept")
    return committed(root)


def _words(check: CheckResult) -> str:
    """What a stopping check says: its evidence, and the first thing that failed of a family with its cause and fix."""
    failed = next((one for one in check.details if one.get("status") in ("fail", "error")), {})
    told = [str(failed.get(key, "")) for key in ("id", "evidence", "cause", "fix")]
    return " ".join([check.name, *filter(None, told)] if failed else [check.name, check.evidence, check.fix])


def _line(case: Case) -> str:
    return f"{case.host:14} {case.name:36}"


def _low(count: int, of: int) -> float:
    """Lower end of the exact 95 % interval (Clopper and Pearson 1934)."""
    low = float(beta.ppf(0.025, count, of - count + 1)) if count else 0.0
    return low if math.isfinite(low) else 0.0


if __name__ == "__main__":
    main()
