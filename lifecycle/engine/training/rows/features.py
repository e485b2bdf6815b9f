"""Prepared features on disk, by content, so that an accelerator does not wait for the same preparation twice.

A stage that is resumed, the next stage of one continued run, and a training that changes only the network find the
tensors of the one before. The key is all that decides them: bytes of the split, chosen rows, columns, state of the
preprocessing, the use case's code, the packages, and the seed, since to_tensors may draw random numbers. Kept is only
what took WORTH_SECONDS to make. The rerun that reproducibility asks for never reads from here: preparing is a part of
what has to be equal.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from trainworthy.lifecycle.identity import canonical_json, deciding_packages, sha256_file, sha256_json
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.task import Task

Tensors = dict[str, "torch.Tensor"]

# On flights 327,346 rows take 0.5 s to make, and 0.3 s to write, verify and read: not worth a file.
WORTH_SECONDS = 2.0
# Of a use case; what was not used for longest goes first.
MOST_BYTES = 8_000_000_000
_WRITING = ".writing-"
# No run writes one set of tensors for so long: it was killed.
ABANDONED_SECONDS = 86_400.0


def prepared_features(
    job: TrainJob, task: Task, features: pd.DataFrame, preprocessing: Mapping[str, Any], rows_sha256: str,
    code_sha256: str,
) -> tuple[Tensors, tuple[str, ...]]:  # fmt: skip
    """The job's tensors, kept ones where the job may use them; and notes on kept ones that were damaged.

    `rows_sha256` names the rows that were chosen of the split.
    """
    cache = job.kept_features
    if cache is None:
        return task.to_tensors(features, preprocessing), ()
    key = sha256_json(
        {
            "split": cache.split_sha256, "rows": rows_sha256, "features": job.rows.features,
            "preprocessing": preprocessing, "code": code_sha256, "packages": dict(deciding_packages()),
            "seed": job.training.seed,
        }
    )  # fmt: skip
    return kept_features(Path(cache.folder), key[:32], lambda: task.to_tensors(features, preprocessing))


def kept_features(folder: Path, key: str, make: Callable[[], Tensors]) -> tuple[Tensors, tuple[str, ...]]:
    """The tensors under `key`, made if they are not there, and notes on what was wrong with them."""
    target = folder / key
    tensors, notes = _read(target)
    if tensors is not None:
        return tensors, notes
    started = time.perf_counter()
    made = make()
    if time.perf_counter() - started >= WORTH_SECONDS:
        notes += _write(target, made)
        prune(folder, MOST_BYTES)
    return made, notes


def prune(folder: Path, most_bytes: int) -> None:
    """Remove what was not used for longest until the rest has at most `most_bytes`, and what killed runs left.

    Other processes may prune at the same moment: what they took away is not there, and no error.
    """
    used: list[tuple[float, int, Path]] = []
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not entry.name.startswith(_WRITING):
                size = sum(path.stat().st_size for path in entry.iterdir())
                used.append(((entry / "manifest.json").stat().st_mtime, size, entry))
            elif time.time() - entry.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(entry, ignore_errors=True)
    total = 0
    for _, size, entry in sorted(used, reverse=True):
        total += size
        if total > most_bytes:
            shutil.rmtree(entry, ignore_errors=True)


def _read(target: Path) -> tuple[Tensors | None, tuple[str, ...]]:
    """Verified tensors; None if there are none, with a note if those that lie there can't be trusted."""
    manifest, file = target / "manifest.json", target / "tensors.pt"
    if not target.is_dir():
        return None, ()
    try:
        if json.loads(manifest.read_text())["sha256"] != sha256_file(file):
            raise ValueError("their bytes were changed")
        # The hash proves that we wrote it; weights_only keeps pickled code out all the same.
        tensors = torch.load(file, weights_only=True, map_location="cpu")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        shutil.rmtree(target, ignore_errors=True)
        return None, (f"kept features were damaged and are made again: {error}",)
    with contextlib.suppress(FileNotFoundError):
        os.utime(manifest)
    return tensors, ()


def _write(target: Path, tensors: Tensors) -> tuple[str, ...]:
    """All or nothing; a full disk costs the next reader time and no training."""
    size = sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())
    target.parent.mkdir(parents=True, exist_ok=True)
    if size > MOST_BYTES or shutil.disk_usage(target.parent).free < 2 * size:
        return ()
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=_WRITING))
    try:
        torch.save({name: tensor.cpu() for name, tensor in tensors.items()}, temporary / "tensors.pt")
        write_atomic(temporary / "manifest.json", canonical_json({"sha256": sha256_file(temporary / "tensors.pt")}))
        os.rename(temporary, target)
    except (OSError, RuntimeError) as error:
        return () if target.is_dir() else (f"features could not be kept: {error}",)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return ()
