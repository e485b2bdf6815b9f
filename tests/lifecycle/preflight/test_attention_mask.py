"""A float mask of ones and zeros hides nothing: nn.MultiheadAttention adds it to the scores."""

import pytest
import torch
from torch import nn
from wiring_subjects import GPT, LENGTH, gpt, trial

from trainworthy.lifecycle.engine.preflight.wiring.passes import few, forward, other_rows


class Attended(GPT):
    """The block's attention is torch's, with the mask as written."""

    def __init__(self, mask):
        super().__init__()
        self.attend, self.hidden = nn.MultiheadAttention(16, 2, batch_first=True), mask

    def attention(self, x):
        return self.attend(x, x, x, attn_mask=self.hidden, need_weights=False)[0]


ONES = torch.ones(LENGTH, LENGTH)
ADDED = torch.tril(ONES)
MASKS = {
    "bool": ONES.triu(1).bool(),
    "minus_infinity": torch.zeros_like(ONES).masked_fill(ONES.triu(1).bool(), -torch.inf),
}


def early_change(mask):
    """How far the outputs of the first half move when the tokens of the second half change, and how far the others."""
    of = gpt(lambda: Attended(mask))
    model, data, half = of.model().eval(), few(of), LENGTH // 2
    words = data.inputs["words"].clone()
    words[:, half:] = other_rows(of, len(words)).inputs["words"][:, half:]
    with torch.no_grad():
        moved = (forward(model, {"words": words}) - forward(model, data.inputs)).abs()
    return float(moved[:, :half].max()), float(moved[:, half:].max())


def test_mask_of_ones_and_zeros_lets_later_tokens_through():
    early, late = early_change(ADDED)
    assert early > 0.05 * late > 0
    found = trial(gpt(lambda: Attended(ADDED)), "causal")
    assert found.status == "fail"
    assert isinstance(found.observed, float)
    assert found.observed > 0.05


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_mask_that_hides_lets_none_through(mask):
    assert early_change(mask)[0] == 0.0
    assert trial(gpt(lambda: Attended(mask)), "causal").status == "pass"
