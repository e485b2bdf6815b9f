"""L1.2: a row's tensors and output must not depend on the rows beside it, nor on rows that were seen before.

Statistics of the batch at prediction time are preprocessing on test rows: they work in an evaluation of many rows and
not on the one row that a service is asked. The same rows are turned into tensors alone, in reversed order, between
rows of extreme values, and once more afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.task import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FAMILY = "rows_apart"
ROWS, ALONE, OTHERS = 64, 4, 32
# float32 sums of one row and of a batch differ in the last digits.
TOLERANCE = 1e-4


def row_independence(
    task: Task,
    rows: pd.DataFrame,
    preprocessing: Mapping[str, Any],
    model: torch.nn.Module | None,
    seed: Callable[[], None],
) -> Leak:
    """Looks at to_tensors, then at the network in evaluation mode, if it is known. `rows` hold the features only."""
    import torch

    def tensors(some: pd.DataFrame) -> dict[str, Tensor]:
        seed()
        return task.to_tensors(some.copy(), preprocessing)

    def outputs(some: pd.DataFrame) -> dict[str, Tensor]:
        assert model is not None
        device = next((parameter.device for parameter in model.parameters()), None)
        model.eval()
        with torch.no_grad():
            return {"the output": model({name: tensor.to(device) for name, tensor in tensors(some).items()})}

    chosen = rows.head(ROWS)
    looked = (("to_tensors", tensors), *((("forward", outputs),) if model is not None else ()))
    for what, compute in looked:
        for way, first, second in _ways(compute, chosen, extreme_rows(rows, OTHERS)):
            difference = _differs(first, second)
            if difference and way == "a second call":
                evidence = f"{what}: {difference} on equal rows; whether rows stay apart can't be seen"
                fix = "let to_tensors and forward give the same for equal rows, as a service needs it"
                return Leak(taxon="L1.2", family=FAMILY, status="insufficient", evidence=evidence, fix=fix)
            if difference:
                return Leak(
                    taxon="L1.2",
                    family=FAMILY,
                    status="fail",
                    evidence=f"{what}: {difference} {way}",
                    fix=fix_of(FAMILY),
                )
    what = "tensors and outputs" if model is not None else "tensors"
    evidence = f"{what} of {len(chosen)} rows stay the same alone, reversed, and among rows of extreme values"
    return Leak(taxon="L1.2", family=FAMILY, status="pass", evidence=evidence)


def _ways(
    compute: Callable[[pd.DataFrame], dict[str, Tensor]], chosen: pd.DataFrame, extremes: pd.DataFrame
) -> Iterator[tuple[str, dict[str, Tensor], dict[str, Tensor]]]:
    """The ways to come by the same rows: the name of each, and the tensors to compare."""
    plain, count = compute(chosen), len(chosen)
    yield "a second call", plain, compute(chosen)
    backwards = compute(chosen.iloc[::-1].reset_index(drop=True))
    yield "when the rows come in reversed order", plain, {name: tensor.flip(0) for name, tensor in backwards.items()}
    for place in range(0, count, max(1, count // ALONE)):
        yield "when it comes alone", _slice(plain, place, 1), compute(chosen.iloc[[place]])
    among = compute(pd.concat([extremes, chosen, extremes], ignore_index=True))
    yield "beside other rows", plain, _slice(among, len(extremes), count)
    yield "after other rows", plain, compute(chosen)


def extreme_rows(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """Rows of values that the columns do hold, each at its column's upper end: no contract is broken by them."""

    def column(values: pd.Series) -> pd.Series:
        known = values.dropna()
        known = known if len(known) else values
        if pd.api.types.is_numeric_dtype(known):
            known = known.sort_values()
        places = np.maximum(len(known) - 1 - np.arange(count), 0)
        return known.iloc[places].reset_index(drop=True).astype(values.dtype)

    return pd.DataFrame({name: column(rows[name]) for name in rows.columns})


def _slice(tensors: Mapping[str, Tensor], start: int, count: int) -> dict[str, Tensor]:
    return {name: tensor[start : start + count] for name, tensor in tensors.items()}


def _differs(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> str:
    """What differs, in words; empty if nothing does."""
    import torch

    if set(first) != set(second):
        return "other tensors come out"
    for name, tensor in first.items():
        if tensor.shape != second[name].shape:
            return f"{name} has the shape {tuple(second[name].shape)}, and not {tuple(tensor.shape)},"
        if not torch.allclose(tensor.double(), second[name].double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            return f"what {name} holds of a row changes"
    return ""
