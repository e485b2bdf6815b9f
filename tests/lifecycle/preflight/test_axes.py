"""Files whose axes to_tensors exchanges by a reshape, beside all that is healthy of the same shape."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from test_channels import Flat, of, smooth

from trainworthy.lifecycle.engine.preflight.inputs.axes import reshaped
from trainworthy.lifecycle.engine.preflight.inputs.channels import channels_first

STEPS, SENSORS, SIDE = 100, 6, 24


def signals(folder, rows: int = 10) -> tuple[pd.DataFrame, torch.Tensor]:
    """Files of six slow signals (100, 6), each with a level and a spread of its own."""
    generator, paths, read = np.random.default_rng(0), [], []
    for row in range(rows):
        steps = generator.normal(size=(STEPS, SENSORS)).cumsum(0) * [1, 5, 0.1, 1, 2, 1] + [0, 9, 1, -3, 0, 0]
        np.save(folder / f"{row}.npy", steps.astype(np.float32))
        paths.append(folder / f"{row}.npy")
        read.append(steps.astype(np.float32))
    return pd.DataFrame({"window": paths}), torch.from_numpy(np.stack(read))


def pictures(folder, rows: int = 10) -> tuple[pd.DataFrame, torch.Tensor]:
    """Files of smooth colours, (24, 24, 3)."""
    generator, paths, read = np.random.default_rng(0), [], []
    for row in range(rows):
        image = Image.fromarray(generator.integers(0, 255, (4, 4, 3), dtype=np.uint8)).resize((SIDE, SIDE))
        image.save(folder / f"{row}.png")
        paths.append(folder / f"{row}.png")
        read.append(np.asarray(image))
    return pd.DataFrame({"picture": paths}), torch.from_numpy(np.stack(read)).float()


def per_channel(values: torch.Tensor) -> torch.Tensor:
    """Each of axis 1 with its own mean and spread taken out."""
    others = [axis for axis in range(values.ndim) if axis != 1]
    return (values - values.mean(others, keepdim=True)) / values.std(others, keepdim=True)


MIXED = {
    "reshape of signals": (signals, lambda x: x.reshape(-1, SENSORS, STEPS)),
    "and scaled": (signals, lambda x: (x.reshape(-1, SENSORS, STEPS) - 3) / 7),
    "scaled by sensor before": (signals, lambda x: ((x - x.mean((0, 1))) / x.std((0, 1))).reshape(-1, SENSORS, STEPS)),
    "scaled by sensor after": (signals, lambda x: per_channel(x.reshape(-1, SENSORS, STEPS))),
    "reshape after a transpose": (signals, lambda x: x.transpose(1, 2).reshape(-1, STEPS, SENSORS)),
    "with an axis of one": (signals, lambda x: x.reshape(-1, 1, SENSORS, STEPS)),
    "reshape of pictures": (pictures, lambda x: x.reshape(-1, 3, SIDE, SIDE) / 255),
    "and scaled by what it takes for colours": (pictures, lambda x: per_channel(x.reshape(-1, 3, SIDE, SIDE))),
}
HEALTHY = {
    "transposed": (signals, lambda x: x.transpose(1, 2)),
    "transposed and scaled by sensor": (signals, lambda x: per_channel(x.transpose(1, 2))),
    "scaled by sensor and transposed": (signals, lambda x: ((x - x.mean((0, 1))) / x.std((0, 1))).transpose(1, 2)),
    "as it is": (signals, lambda x: x),
    "flat": (signals, lambda x: x.flatten(1)),
    "in patches": (signals, lambda x: x.reshape(-1, 10, 10, SENSORS)),
    "constant": (signals, lambda x: torch.zeros(len(x), SENSORS, STEPS)),
    "permuted": (pictures, lambda x: x.permute(0, 3, 1, 2)),
    "permuted and scaled by colour": (pictures, lambda x: per_channel(x.permute(0, 3, 1, 2))),
    "turned": (pictures, lambda x: x.permute(0, 3, 2, 1)),
    "smaller": (pictures, lambda x: torch.nn.functional.interpolate(x.permute(0, 3, 1, 2), size=12)),
    "grey": (pictures, lambda x: x.mean(3)),
    "other numbers of that shape": (pictures, lambda x: torch.rand(len(x), 3, SIDE, SIDE)),
}


@pytest.mark.parametrize("case", MIXED)
def test_axes_that_a_reshape_exchanges_are_told_with_both_shapes(tmp_path, case):
    files, made = MIXED[case]
    rows, values = files(tmp_path)
    (told,) = reshaped(rows, {"signal": made(values), "other": torch.zeros(len(rows), 3)})
    assert told.startswith("signal of shape (")
    assert told.endswith("mixed by a reshape")


@pytest.mark.parametrize("case", HEALTHY)
def test_other_ways_into_a_tensor_are_none(tmp_path, case):
    files, made = HEALTHY[case]
    rows, values = files(tmp_path)
    assert reshaped(rows, {"signal": made(values)}) == []


def test_columns_without_files_and_files_that_are_none_are_not_asked(tmp_path):
    rows, values = signals(tmp_path)
    mixed = {"signal": values.reshape(-1, SENSORS, STEPS)}
    assert reshaped(rows.astype("str"), mixed) == []
    (tmp_path / "3.npy").write_bytes(b"none")
    assert reshaped(rows, mixed) == []


def test_the_check_fails_of_them_and_passes_without():
    healthy = of(Flat, smooth())
    assert channels_first(healthy).status == "pass"
    found = channels_first(
        replace(healthy, reshaped=("signal of shape (6, 100) is window of shape (100, 6), reshaped",))
    )
    assert (found.status, found.severity) == ("fail", None)
    assert "transpose or permute" in found.fix
