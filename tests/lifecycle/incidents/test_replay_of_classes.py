"""The replay of a training whose label is one of four classes."""

from dataclasses import replace

import kind_jobs
import stages
import toy_jobs

PLAIN = ('{name: [float(training[name].mean()), float(training[name].std())] for name in ("x1", "x2")}',
         '{"x1": [0.0, 1.0], "x2": [0.0, 1.0]}')  # fmt: skip
CROSS = 'return nn.functional.cross_entropy(outputs, targets, reduction="none")'
LOG = (CROSS, "return -torch.log(outputs.softmax(dim=1))[range(len(targets)), targets]")


def test_log_of_zero_of_a_class_is_replayed_bit_for_bit_with_line_and_row(tmp_path):
    case = kind_jobs.kind_case("multiclass", tmp_path / "classes").changed(tmp_path / "code" / "toy", PLAIN, LOG)
    splits = toy_jobs.copy_splits(case.splits, tmp_path / "splits", training=stages.one_row("x1", 1e6))
    out = tmp_path / "var" / "training" / "toy" / "0123" / "full"
    result = replace(case, splits=splits).train(out, "full")
    assert result.alarm is not None
    (incident,) = (out / "incidents").glob("*")
    replayed = stages.replay(incident)
    assert replayed.reproduced == "bit_for_bit"
    assert replayed.first_bad is not None
    # The row's own class is sure; the logarithms of the others' 0 are left out, but for their gradient of 0 / 0.
    assert (replayed.first_bad.node, replayed.first_bad.phase) == ("LogBackward0", "backward")
    assert "in loss_fn" in replayed.first_bad.line
    assert [row.row for row in replayed.rows] == [1234]
