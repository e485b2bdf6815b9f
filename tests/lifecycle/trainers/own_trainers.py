"""The toy use case with a training script of its own: those of docs/how-to/own-trainer.md, as they stand there."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_jobs
import yaml

from trainworthy.lifecycle.protocol.jobs import TrainJob

DOCUMENT = toy_jobs.ROOT / "docs" / "how-to" / "own-trainer.md"
# What each of them needs beside torch.
NEEDS = {"hand": "torch", "epochs": "torch", "Lightning": "pytorch_lightning", "transformers": "transformers"}
# Longer ones of the same frameworks, which preflight's trial alone runs.
LONGER = {"Lightning with early stopping": "pytorch_lightning"}
EXTRA = {"pytorch_lightning": "lightning", "transformers": "transformers"}


def documented(name: str) -> str:
    """A whole train.py of the documentation: by hand, epochs, Lightning or transformers."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(f"# train.py, by {name}\n")]
    return found


def needs(name: str) -> None:
    """Skip on a machine without the framework; CI has to have it."""
    package = (NEEDS | LONGER)[name]
    try:
        __import__(package)
    except ImportError:
        if os.environ.get("CI"):
            pytest.fail(f"{package} is missing; CI must install it")
        pytest.skip(f"{package} is not installed: pip install 'trainworthy[{EXTRA[package]}]'")


def use_case(folder: Path, script: str, *replacements: tuple[str, str]) -> Path:
    """A copy of the toy with this train.py; each (old, new) is replaced in it, and old has to be there once."""
    shutil.copytree(toy_jobs.TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for old, new in replacements:
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    (folder / "train.py").write_text(script)
    values = yaml.safe_load((folder / "use_case.yaml").read_text())
    (folder / "use_case.yaml").write_text(yaml.safe_dump(values | {"trainer": "train.py"}))
    return folder


def asked_at(step: int) -> Callable[[], bool]:
    """A should_stop that asks for an end soon after that many updates."""
    calls = []

    def should_stop() -> bool:
        calls.append(0)
        return len(calls) >= 2 * step

    return should_stop


def job(splits: Path, folder: Path, out: Path, stage: str = "smoke", **fields) -> TrainJob:
    """A job for one stage of a use case with a train.py."""
    split = fields.pop("split", toy_jobs.SPEC.split)
    return toy_jobs.train_job(splits, out, stage, use_case=folder, trainer="train.py", split=split, **fields)
