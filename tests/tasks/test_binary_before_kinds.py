"""Figures of a binary label are those of the code before there were kinds, which wrote the file beside this test."""

import json
from pathlib import Path

import numpy as np
import pytest

from trainworthy.lifecycle.evaluation.comparison import paired_gain
from trainworthy.lifecycle.protocol.figures import BY_GROUP
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.metric import estimate

BEFORE = json.loads((Path(__file__).parent / "binary_before_kinds.json").read_text())
LABELS, GROUPS = np.array(BEFORE["labels"]), np.array(BEFORE["groups"])
CANDIDATE, REFERENCE = np.array(BEFORE["candidate"]), np.array(BEFORE["reference"])


@pytest.mark.parametrize("name", BEFORE["estimates"])
def test_metric_and_its_interval_are_as_before(name):
    found = estimate(BINARY.metrics[name], *BINARY.checked(LABELS, CANDIDATE), GROUPS)
    assert found.model_dump(exclude={"method", "made"}) == pytest.approx(BEFORE["estimates"][name], abs=1e-12)
    assert found.method == BY_GROUP


@pytest.mark.parametrize("name", BEFORE["gains"])
def test_gain_and_its_interval_are_as_before(name):
    found = paired_gain(BINARY, LABELS, CANDIDATE, REFERENCE, GROUPS, name, name="x").gain
    assert found.model_dump(exclude={"method", "made"}) == pytest.approx(BEFORE["gains"][name], abs=1e-12)
    assert found.method == BY_GROUP


def test_calibration_is_as_before():
    state = BINARY.fit_calibration(LABELS, REFERENCE)
    assert state == pytest.approx(BEFORE["platt"], abs=1e-12)
    assert BINARY.calibrated(REFERENCE, state)[:20] == pytest.approx(BEFORE["calibrated"], abs=1e-12)
