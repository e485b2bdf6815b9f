"""Single operations run again, alone, with as many rows as the whole batch has: what their kernels hold then.

A kernel's memory is no straight line in the rows: oneDNN takes another kernel from some size on, and a line through
that point from few rows was 66 % too high, or 7 % too low. An operation alone needs no step around it, only
tensors of the sizes that it will meet; these follow from the sizes in two real steps on few rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from trainworthy.lifecycle.engine.preflight.memory.call import Call
from trainworthy.lifecycle.engine.preflight.memory.real_step import on_device


def replay(calls: Sequence[Call], device: str, cpu_seconds: float) -> dict[str, int]:
    """Bytes that each call's kernels held beside its outputs, by key, in the order given.

    Left out is what would take more than is left of `cpu_seconds`, and what does not run on zeros.
    """
    ran: list[tuple[str, bool]] = []

    def run(mode: Any) -> None:
        mode.begin()
        end = time.process_time() + cpu_seconds
        for call in calls:
            if time.process_time() + call.cpu_seconds <= end:
                ran.append((call.key, _runs(call, mode)))

    with torch.no_grad():
        levels = on_device(device, run)
    return {key: inside for (key, well), inside in zip(ran, levels.inside, strict=True) if well}


def _runs(call: Call, mode: Any) -> bool:
    try:
        call.again(mode.call)
    except Exception:
        # Zeros may be refused, or lengths not fit together: the line from few rows stays.
        return False
    return True
