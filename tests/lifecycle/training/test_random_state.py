"""The random number generators: equal seeds draw equal numbers, as by torch itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from trainworthy.lifecycle.engine.training.random_state import random_kept, seed_all, seed_torch


@pytest.mark.parametrize("seed", [0, 7, -3, 2**40])
def test_seed_is_that_of_torch_and_keeps_no_call_for_devices_that_are_not_here(seed):
    torch.manual_seed(seed)
    expected = torch.rand(3), torch.initial_seed()
    waiting = len(torch.cuda._queued_calls)
    seed_torch(seed)
    assert torch.equal(torch.rand(3), expected[0])
    assert torch.initial_seed() == expected[1]
    assert torch.accelerator.is_available() or len(torch.cuda._queued_calls) == waiting


def test_seed_of_all_is_kept_from_whoever_comes_after():
    seed_all(1)
    first = torch.rand(2).tolist(), random.random(), np.random.rand()
    with random_kept():
        seed_all(1)
        assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == first
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) != first
