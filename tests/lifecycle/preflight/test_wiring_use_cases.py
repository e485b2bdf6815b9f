"""The wiring checks on the toy use case, as preflight runs them: sound as it is, and with faults in its model.py."""

import pandas as pd
import pytest
import toy_jobs
from wiring_subjects import alarms, trial

from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.preflight.subject import Subject


def drawn(splits, tmp_path, *replacements) -> Subject:
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *replacements)
    job = toy_jobs.preflight_job(splits, tmp_path, use_case=use_case)
    return draw_sample(job, pd.read_parquet(job.training_file), "cpu").subject


def test_toy_raises_no_word(splits, tmp_path):
    assert alarms(drawn(splits, tmp_path)) == {}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ((".squeeze(1)", ".squeeze(1).softmax(0)"), "rows_apart"),
        ((".squeeze(1)", ".squeeze(1).sigmoid()"), "logits"),
        ((".squeeze(1)", ".squeeze(1).detach().requires_grad_()"), "gradients"),
        ((".squeeze(1)", ".squeeze(1) + torch.randn(())"), "evaluation_repeats"),
    ],
)
def test_fault_in_the_toy_fails(splits, tmp_path, change, check):
    found = trial(drawn(splits, tmp_path, change), check)
    assert found.status == "fail", found.evidence
