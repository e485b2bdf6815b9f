"""Rows and models that are known functions of their features, to be asked again with changed ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit as sigmoid

from trainworthy.lifecycle.evaluation.rescored import InputProbe
from trainworthy.lifecycle.protocol.jobs import ChangedInputsJob, InputColumn
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec
from trainworthy.lifecycle.tasks.binary import BINARY

COLUMNS = (
    InputColumn(name="x1", logical_type="number"),
    InputColumn(name="x2", logical_type="number"),
    InputColumn(name="shop", logical_type="string"),
)


def rows(count: int = 2_400, groups: int = 30, seed: int = 0) -> pd.DataFrame:
    """Two numbers, a shop, a day of each row; the label is 1 with probability sigmoid(2 · x1)."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "x1": rng.normal(size=count), "x2": rng.normal(size=count), "shop": rng.choice(["n", "s", "w"], count),
        "day": rng.integers(0, groups, count),
    })  # fmt: skip
    return frame.assign(label=(rng.random(count) < sigmoid(2 * frame["x1"])).astype(float))


def asked(model: Callable[[pd.DataFrame], np.ndarray], frame: pd.DataFrame | None = None, **changed: Any) -> InputProbe:
    """The rows, to be answered by this function of them."""
    frame = rows() if frame is None else frame
    values = {
        "kind": BINARY, "rows": frame, "labels": frame["label"].to_numpy(), "groups": frame["day"], "weights": None,
        "answer": lambda some: np.asarray(model(some), dtype=float),
    }  # fmt: skip
    return InputProbe(**values | changed)


def job(*tests: dict[str, Any], columns: tuple[InputColumn, ...] = COLUMNS, **changed: Any) -> ChangedInputsJob:
    return ChangedInputsJob(columns=columns, tests=tuple(map(BehaviourSpec.model_validate, tests)), **changed)
