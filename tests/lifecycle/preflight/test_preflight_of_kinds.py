"""Preflight of the other kinds of task: silent on healthy ones, and faults of each kind by their own cause."""

from dataclasses import replace
from typing import Any

import kind_jobs
import numpy as np
import pytest
import torch

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.outputs.best_constant import constant_losses
from trainworthy.lifecycle.engine.preflight.inputs.batches import rows_of_step, shuffled
from trainworthy.lifecycle.engine.preflight.inputs.labels import labels_in_range
from trainworthy.lifecycle.engine.preflight.inputs.pairs import pairs_together
from trainworthy.lifecycle.engine.preflight.overfit import checks as overfit
from trainworthy.lifecycle.engine.preflight.overfit.checks import right_pairs
from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.preflight.start.initial_loss import initial_loss
from trainworthy.lifecycle.engine.preflight.wiring.predictions import predictions
from trainworthy.lifecycle.engine.preflight.wiring.reach import uses_labels
from trainworthy.lifecycle.engine.training.monitors.prior import prior_loss

SQUARED = "return (outputs - targets) ** 2"
CROSS = 'return nn.functional.cross_entropy(outputs, targets, reduction="none")'
LOGITS = 'return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)'
SORTED = "outputs.sort(dim=1).values"
SCALED = "self.start + self.scale * found"
# (fault, kind, replacements, what the cause says)
MEANT_OTHERWISE = {
    "sigmoid": ("regression", [("return outputs\n", "return torch.sigmoid(outputs)\n")], "another unit"),
    "other_unit": ("regression", [("return outputs\n", "return outputs / 60\n")], "another unit"),
    "not_unscaled": (
        "regression", 
        [(f"{SCALED}.squeeze(1)", "found.squeeze(1)"), (SQUARED, "return (outputs - (targets - 42) / 23) ** 2")],
        "another unit",
    ),
    "other_sign": ("regression", [("return outputs\n", "return -outputs\n")], "sign"),
    "shifted_quantiles": ("quantiles", [(SORTED, f"{SORTED} - 30")], "another unit"),
    "turned_levels": ("quantiles", [("(levels * off, (levels - 1) * off)", "((1 - levels) * off, -levels * off)"),
                                    (SORTED, "outputs")], "over- and underestimates swapped"),
    "squared": ("quantiles", [("return torch.maximum(levels * off, (levels - 1) * off)", "return (off**2)")],
                "the same of every level"),
    "one_level": ("quantiles", [("(levels * off, (levels - 1) * off)", "(0.5 * off, -0.5 * off)")],
                  "the same of every level"),
    "softmax_twice": ("multiclass", [("softmax(dim=1)", "softmax(dim=1).softmax(dim=1)")], ""),
    "turned_classes": ("multiclass", [("outputs.softmax", "outputs.flip(1).softmax")], "low is answered as top"),
    "next_class": ("multiclass", [("(outputs, targets,", "(outputs, (targets + 1) % 4,")], "different orders"),
    "codes": (
        "multiclass", [(CROSS, "return ((outputs.softmax(1) * torch.arange(4.0)).sum(1) - targets) ** 2")],
        "numbers of classes",
    ),
    "softmax_over_labels": ("multilabel", [("outputs.sigmoid()", "outputs.softmax(dim=1)")], "softmax over the labels"),
    "softmax_in_the_network": (
        "multilabel",
        [("return found\n", "return found.softmax(dim=1)\n"), ("outputs.sigmoid()", "outputs"),
         (LOGITS, 'return nn.functional.binary_cross_entropy(outputs, targets, reduction="none").mean(dim=1)')],
        "a softmax over the labels",
    ),
    "softmax_in_the_loss": ("multilabel", [(LOGITS, CROSS)], "such as cross_entropy"),
    "sigmoid_twice": ("multilabel", [("outputs.sigmoid()", "outputs.sigmoid().sigmoid()")], ""),
    "turned_labels": ("multilabel", [("outputs.sigmoid()", "outputs.flip(1).sigmoid()")], "cheap is answered as rare"),
    "rounded_labels": ("multilabel", [("outputs.sigmoid()", "(outputs > 0).float()")], "rounds"),
    "rounded": (
        "multiclass", [("outputs.softmax(dim=1)", "nn.functional.one_hot(outputs.argmax(1), 4).float()")], "rounds",
    ),
}  # fmt: skip
OTHER_QUANTILES = [("(0.1, 0.5, 0.9)", "(0.1, 0.5, 0.8)")]
ONE_SIDED = [(SQUARED, "return torch.maximum(0.9 * (targets - outputs), 0.1 * (outputs - targets))")]
HEALTHY = {
    "weighed_labels": (
        "multilabel",
        [("targets, reduction", "targets, pos_weight=torch.tensor([1.0, 2.0, 20.0]), reduction")],
    ),
    "smoothed_labels": ("multilabel", [("(outputs, targets,", "(outputs, 0.8 * targets + 0.1,")]),
    "labels_as_probabilities": (
        "multilabel",
        [
            ("return found\n", "return found.sigmoid()\n"),
            ("outputs.sigmoid()", "outputs"),
            (LOGITS, 'return nn.functional.binary_cross_entropy(outputs, targets, reduction="none").mean(dim=1)'),
        ],
    ),
    "squared_labels": ("multilabel", [(LOGITS, "return (outputs.sigmoid() - targets).square().mean(dim=1)")]),
    "absolute": ("regression", [(SQUARED, "return (outputs - targets).abs()")]),
    "clipped": ("regression", [(SQUARED, "return (outputs - targets.clamp(max=80)) ** 2")]),
    "standardised": (
        "regression",
        [(SQUARED, "return ((outputs - targets) / 23) ** 2")],
    ),
    "smooth_pinball": (
        "quantiles",
        [
            (
                "return torch.maximum(levels * off, (levels - 1) * off)",
                "return (levels * off + 4 * nn.functional.softplus(-off / 4))",
            )
        ],
    ),
    "smoothed": ("multiclass", [('reduction="none"', 'reduction="none", label_smoothing=0.3')]),
    "log_probabilities": (
        "multiclass",
        [
            ("return found\n", "return found.log_softmax(dim=1)\n"),
            (CROSS, 'return nn.functional.nll_loss(outputs, targets, reduction="none")'),
            ("outputs.softmax(dim=1)", "outputs.exp()"),
        ],
    ),
    "squared_probabilities": (
        "multiclass",
        [(CROSS, "return (outputs.softmax(1) - nn.functional.one_hot(targets, 4)).square().sum(1)")],
    ),
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """A use case of each kind, and one whose number has a heavy tail."""
    root = tmp_path_factory.mktemp("kinds")
    found = {kind: kind_jobs.kind_case(kind, root / kind) for kind in kind_jobs.TASKS}
    return found | {"price": kind_jobs.kind_case("regression", root / "price", "price")}


def subject_of(case, tmp_path):
    job = case.preflight_job(tmp_path)
    return draw_sample(job, read_rows(job.training_file, job.rows), "cpu").subject


def planted(cases, tmp_path, kind, replacements):
    return subject_of(cases[kind].changed(tmp_path / "changed", *replacements), tmp_path)


@pytest.mark.parametrize("kind", ["regression", "quantiles", "multiclass", "multilabel"])
def test_preflight_of_a_healthy_use_case_of_the_kind_finds_nothing(cases, tmp_path, kind):
    result = run_preflight(cases[kind].preflight_job(tmp_path))
    assert {trial.check: trial.evidence for trial in result.trials if trial.status in ("fail", "error")} == {}
    assert [trial.check for trial in result.trials if trial.status == "insufficient" and trial.required] == []
    assert {leak.status for leak in result.leakage} <= {"pass", "not_applicable"}
    assert result.untried == ""


@pytest.mark.parametrize("name", MEANT_OTHERWISE)
def test_predict_that_means_something_else_than_the_loss_fails_by_its_cause(cases, tmp_path, name):
    kind, replacements, cause = MEANT_OTHERWISE[name]
    found = predictions(planted(cases, tmp_path, kind, replacements))
    assert found.status == "fail", found.evidence
    assert found.severity != "warning"
    assert cause in found.cause


@pytest.mark.parametrize("name", HEALTHY)
def test_predict_that_means_what_the_loss_means_passes(cases, tmp_path, name):
    found = predictions(planted(cases, tmp_path, *HEALTHY[name]))
    assert found.status == "pass", found.evidence


@pytest.mark.parametrize(
    ("kind", "replacements", "told"),
    [
        ("quantiles", OTHER_QUANTILES, "0.9 has 80"),
        ("quantiles", [(SORTED, "outputs")], "cross"),
        ("regression", ONE_SIDED, "labels' mean"),
    ],
    ids=["other_level", "not_sorted", "one_sided"],
)
def test_quantiles_that_are_off_or_may_cross_and_one_sided_numbers_are_warnings(
    cases, tmp_path, kind, replacements, told
):
    found = predictions(planted(cases, tmp_path, kind, replacements))
    assert (found.status, found.severity) == ("fail", "warning")
    assert told in found.evidence


def test_loss_without_a_lowest_value_fails_where_answers_get_worse_as_it_falls(cases, tmp_path):
    found = predictions(planted(cases, tmp_path, "regression", [(SQUARED, "return -(outputs - targets) ** 2")]))
    assert found.status == "fail"
    assert "wrong sign" in found.cause


def test_labels_on_one_side_of_all_outputs_are_used_by_an_absolute_error(cases, tmp_path):
    subject = planted(cases, tmp_path, "regression", [(SQUARED, "return (outputs - targets).abs()"), (SCALED, "found")])
    assert uses_labels(subject).status == "pass"
    fixed = replace(subject.recipe, loss_fn=lambda outputs, targets: outputs.abs() + targets)
    assert uses_labels(replace(subject, recipe=fixed)).status == "fail"


def test_large_unit_is_no_fault_of_a_network_that_knows_it(cases, tmp_path):
    assert initial_loss(subject_of(cases["price"], tmp_path)).status == "pass"
    unscaled = planted(cases, tmp_path, "price", [("self.start + self.scale * found", "self.start + found")])
    assert initial_loss(unscaled).severity == "warning"


def test_whole_numbers_are_no_classes_of_the_quantiles_head(cases, tmp_path):
    blind = [("off = targets[:, None] - outputs", "off = -outputs")]
    subject = planted(cases, tmp_path, "quantiles", blind)
    whole = replace(subject, training=replace(subject.training, targets=subject.training.targets.round()))
    assert "classes" not in labels_in_range(whole).evidence
    assert uses_labels(whole).status == "fail"


def test_targets_of_other_rows_are_found_in_augment(cases, tmp_path):
    subject = subject_of(cases["regression"], tmp_path)

    def rolled(inputs, targets, generator):
        return inputs, targets.roll(1)

    def reordered(inputs, targets, generator):
        order = torch.randperm(len(targets), generator=generator)
        return {name: tensor[order] for name, tensor in inputs.items()}, targets[order]

    found = {
        augment: pairs_together(replace(subject, recipe=replace(subject.recipe, augment=augment)))
        for augment in (rolled, reordered)
    }
    assert (found[rolled].status, found[reordered].status) == ("fail", "not_applicable")
    assert "16 of 16 rows" in found[rolled].evidence


def test_prior_of_a_heavy_tail_is_taken_over_all_labels(cases, tmp_path):
    subject = subject_of(cases["price"], tmp_path)
    found = prior_loss(subject.model(), subject.training, subject.recipe, 128)
    assert found == pytest.approx(float(subject.training.targets.var(correction=0)), rel=1e-3)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e7])
def test_best_constant_is_found_in_any_unit(unit):
    generator = torch.Generator().manual_seed(0)
    targets = (40 + 20 * torch.randn(500, generator=generator)) * unit
    outputs = (40 + torch.rand(500, generator=generator)) * unit
    found = constant_losses(lambda one, other: (one - other) ** 2, outputs, targets)
    assert found.best == pytest.approx(float(targets.var(correction=0)), rel=0.01)


def test_amounts_around_a_hundred_million_are_overfitted_as_small_ones(cases, tmp_path):
    subject = subject_of(cases["regression"], tmp_path)
    data = replace(subject.training, targets=1e7 * subject.training.targets)
    large = replace(
        subject, training=data, recipe=replace(subject.recipe, clip_norm=1e30),
        build=lambda: Larger(subject.build()),
    )  # fmt: skip
    (check,) = [check for check in overfit.CHECKS if check.id == "overfit.ten_batches"]
    assert check.look(large).status == "pass"


class Larger(torch.nn.Module):
    """Outputs in another unit."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, inputs):
        return 1e7 * self.network(inputs)


def test_right_pairs_of_classes_and_of_numbers():
    class Outputs:
        def __init__(self, answers, targets):
            self.answers, self.targets = answers, [targets]

        def trees(self):
            return [self.answers]

    numbers: Any = Outputs(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0]))
    assert right_pairs(lambda one: one, numbers) == pytest.approx(2 / 3)
    classes: Any = Outputs(torch.eye(3), torch.tensor([0, 1, 2]))
    assert right_pairs(lambda one: one, classes) == 1
    assert right_pairs(lambda one: one.flip(1), classes) == 0.5
    masks = torch.arange(64).reshape(1, 8, 8) // 32
    half: Any = Outputs(torch.eye(2)[masks[:, ::2, ::2]].movedim(3, 1), masks)
    assert right_pairs(lambda one: one, half) == 1
    assert right_pairs(lambda one: one.flip(1), half) == 0
    labels: Any = Outputs(torch.tensor([[0.9, 0.2], [0.1, 0.8]]), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert right_pairs(lambda one: one, labels) == 0.5


def test_softmax_is_right_where_each_row_has_one_label(cases, tmp_path):
    subject = planted(cases, tmp_path, "multilabel", [("outputs.sigmoid()", "outputs.softmax(dim=1)")])
    one_each = torch.nn.functional.one_hot(torch.arange(len(subject.training.targets)) % 3, 3).float()
    assert predictions(replace(subject, training=replace(subject.training, targets=one_each))).status == "pass"


def test_batches_sorted_by_a_combination_of_labels_are_found(cases, tmp_path):
    subject = subject_of(cases["multilabel"], tmp_path)
    assert subject.labels is not None
    assert subject.labels.shape[1] == 3
    assert shuffled(subject).status == "pass"
    # The sum of a row's labels is the same, and the plan draws neighbours of the file together.
    in_turn = np.eye(3)[np.arange(len(subject.labels)) * 3 // len(subject.labels)]
    plan = subject.plan
    order = np.concatenate([rows_of_step(plan, step) for step in range(plan.steps_per_epoch)])
    sorted_rows = np.zeros_like(in_turn)
    sorted_rows[order] = in_turn[: len(order)]
    assert shuffled(replace(subject, labels=sorted_rows)).status == "fail"
