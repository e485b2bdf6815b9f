"""What the monitors find in a script's training, and that they keep quiet where it tells little or trains oddly."""

import own_trainers
import pytest
import torch

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.trainers.watched import _bits
from trainworthy.lifecycle.incidents.incident import read_incident
from trainworthy.lifecycle.protocol.results import TrainResult

HAND = own_trainers.documented("hand")
STEP = "        session.step(loss=loss, rows=rows, model=model, optimizer=optimizer)\n"
UPDATE = "        optimizer.step()\n"
ROWS = "        rows = batch(session, step)\n"
ZERO = "        optimizer.zero_grad()\n"
MADE = "    optimizer = torch.optim.AdamW(model.parameters(), lr=session.training.optimizer.learning_rate)\n"
TWO = (
    "    parts = list(model.layers.parameters()), list(model.shop.parameters())\n"
    "    pair = [torch.optim.AdamW(part, lr=session.training.optimizer.learning_rate) for part in parts]\n"
    "    optimizer = pair[0]\n"
)
BOTH = "        pair[0].step()\n        pair[1].step()\n"
SCORE = (
    "        with torch.no_grad():\n            model.eval()\n"
    "            model({name: 0 * tensor[:1] for name, tensor in session.inputs.items()})\n            model.train()\n"
)
RATE = "        optimizer.param_groups[0]['lr'] = 0.01 * min(step, session.steps - 1 - step) / session.steps\n"
BACKWARD = "        loss.backward()\n"
ZEROS = "        optimizer.zero_grad(set_to_none=False)\n"
VALIDATES = (
    "        if step == 10:\n            model.eval()\n            with torch.no_grad():\n"
    "                model(session.inputs)\n"
)
HEALTHY = {
    "as_documented": (),
    "tells_after_zero_grad": ((ZERO, ""), (STEP, ""), (UPDATE, UPDATE + ZERO + STEP)),
    "tells_after_zero_grad_to_zeros": ((ZERO, ""), (STEP, ""), (UPDATE, UPDATE + ZEROS + STEP)),
    "trains_in_evaluation_mode": ((MADE, MADE + "    model.eval()\n"),),
    "attacks_in_evaluation_mode": (
        (ZERO, "        model.eval()\n        model({n: t[rows] for n, t in session.inputs.items()})\n"
         "        model.train()\n" + ZERO),
    ),
    "tells_the_loss_alone": ((STEP, "        session.step(loss=loss)\n"),),
    "tells_no_optimizer": ((STEP, "        session.step(loss=loss, model=model)\n"),),
    "tells_after_the_update": ((STEP, ""), (UPDATE, f"{UPDATE}{STEP}")),
    "two_optimizers_of_which_one_is_told": ((MADE, TWO), (UPDATE, BOTH), (ZERO, "        model.zero_grad()\n")),
    "two_optimizers_by_turns": (
        (MADE, TWO), (ZERO, "        model.zero_grad()\n        optimizer = pair[step % 2]\n"),
    ),
    "five_updates_of_one_for_one_of_the_other_and_one_is_told": (
        (MADE, TWO), (ZERO, "        model.zero_grad()\n"), (UPDATE, "        pair[step % 5 == 3].step()\n"),
    ),
    "scores_between_updates": ((ZERO, f"{ZERO}{SCORE}"),),
    "all_rows_at_once": ((ROWS, "        rows = torch.arange(len(session.targets))\n"),),
    "the_same_few_rows_for_long": ((ROWS, ROWS.replace("step)", "step // 50)")),),
    "warm_up_from_zero_and_decay_to_zero": (
        (ZERO, f"{ZERO}{RATE}"),
    ),
    "a_frozen_part_that_no_optimizer_has": (
        (MADE, MADE.replace("model.", "model.layers.") + "    model.shop.requires_grad_(False)\n"),
    ),
    "a_head_that_starts_at_zero": (
        (MADE, "    torch.nn.init.zeros_(model.layers[3].weight)\n    torch.nn.init.zeros_(model.layers[3].bias)\n"
         + MADE),
    ),
    "grows_a_layer": (
        (ZERO, "        if step == 30:\n            model.extra = torch.nn.Linear(1, 1)\n"
         "            optimizer.add_param_group({'params': list(model.extra.parameters())})\n"
         "        if step >= 30:\n            loss = loss + 0.01 * model.extra(torch.ones(1, 1)).square().mean()\n"
         + ZERO),
    ),
}  # fmt: skip


def trained(splits, tmp_path, *replacements: tuple[str, str]) -> TrainResult:
    folder = own_trainers.use_case(tmp_path / "toy", HAND, *replacements)
    return run_stage(own_trainers.job(splits, folder, tmp_path / "out", "full"))


@pytest.mark.parametrize("way", HEALTHY)
def test_healthy_script_raises_no_critical_alarm(splits, tmp_path, way):
    result = trained(splits, tmp_path, *HEALTHY[way])
    assert [alarm.evidence for alarm in result.alarms if alarm.severity == "critical"] == []
    assert (result.steps, result.alarm) == (result.planned_steps, None)


KILL = (
    "        if step == 25:\n            torch.nn.init.zeros_(model.layers[0].weight)\n"
    "            torch.nn.init.constant_(model.layers[0].bias, -100.0)\n"
)
# What is planted, the monitor that finds it, and the update by which it does: two looks, where one may be chance.
PLANTED = {
    "dead_layer": ((ROWS, KILL + ROWS), "dead_layer", 61),
    "optimizer_of_another_model": (
        (MADE, MADE.replace("model.", "build_model(session.preprocessing, session.hyperparameters).")),
        "not_in_optimizer", 21,
    ),
    "optimizer_that_is_never_called": ((UPDATE, ""), "unchanged_layer", 61),
    "gradients_that_are_never_zeroed": ((ZERO, ""), "gradients_not_zeroed", 21),
    "rate_that_is_far_too_large": (
        (MADE, MADE.replace("lr=session.training.optimizer.learning_rate", "lr=3.0")), "update_ratio", 20,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_found_and_named(splits, tmp_path, fault):
    replacement, monitor, by = PLANTED[fault]
    result = trained(splits, tmp_path, replacement)
    found = {alarm.monitor: alarm for alarm in result.alarms if alarm.severity == "critical"}
    assert monitor in found, result.alarms
    assert found[monitor].step <= by
    assert found[monitor].incident is not None


# What leaves no gradient at an update, and by what it is told.
LOST = {
    "zero_grad_after_backward": (((ZERO, ""), (BACKWARD, BACKWARD + ZERO)), "no_gradient_at_all", 17),
    "zero_grad_to_zeros_after_backward": (((ZERO, ""), (BACKWARD, BACKWARD + ZEROS)), "zero_gradient", 20),
    "step_before_backward": (
        ((UPDATE, ""), (STEP, ""), (BACKWARD, UPDATE + STEP + BACKWARD)), "no_gradient_at_all", 17,
    ),
    "loss_through_item": (
        ((BACKWARD, "        loss = torch.tensor(loss.item(), requires_grad=True)\n" + BACKWARD),),
        "no_gradient_at_all", 17,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", LOST)
def test_update_without_a_gradient_is_told_as_a_fact(splits, tmp_path, fault):
    replacements, monitor, step = LOST[fault]
    first, *_ = trained(splits, tmp_path, *replacements).alarms
    assert (first.monitor, first.severity, first.step) == (monitor, "critical", step)
    assert first.rule == ("gradient_lost" if monitor == "no_gradient_at_all" else "gradient_blocked")


def test_optimizer_that_is_never_called_is_no_rounding(splits, tmp_path):
    alarms = trained(splits, tmp_path, (UPDATE, "")).alarms
    assert {alarm.monitor for alarm in alarms} >= {"unchanged_layer"}
    assert [alarm for alarm in alarms if "round" in alarm.monitor + alarm.rule] == []


def test_evaluation_mode_that_stays_on_after_a_validation_is_a_warning(splits, tmp_path):
    alarms = trained(splits, tmp_path, (ZERO, VALIDATES + ZERO)).alarms
    (found,) = [alarm for alarm in alarms if alarm.monitor == "evaluation_mode"]
    assert (found.severity, found.rule, found.onset, found.where) == (
        "warning", "evaluation_stays_on", 20, ("layers.2",)
    )  # fmt: skip


def test_weights_of_any_type_are_told_apart_by_their_bits():
    made = [torch.ones(3, dtype=kind) for kind in (torch.float16, torch.float32, torch.float64, torch.complex64)]
    for one in made:
        before = _bits(one)
        assert _bits(one.clone()) == before
        one[1] += 2**-9
        assert _bits(one) != before


def test_weights_that_an_update_spoiled_end_the_training_at_the_next_look(splits, tmp_path):
    spoiled = f"{UPDATE}        if step == 40:\n            torch.nn.init.constant_(model.layers[3].bias, torch.nan)\n"
    result = trained(
        splits, tmp_path, (UPDATE, spoiled), ("        session.checkpoint(model=model, optimizer=optimizer)\n", "")
    )
    assert result.alarm is not None
    assert result.alarm.monitor == "non_finite_parameter"
    assert result.alarm.evidence.endswith("the training ended there, without a model")
    assert result.steps in (40, 41)


# Gradients of a hundred times their size for the updates from 80 on, which both ways clip to a norm of 1.
CLIPPED = {
    "hand": (
        (
            STEP,
            "        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            + STEP.replace("model=model", "model=model, grad_norm=norm"),
        ),
        ("session.targets[rows]).mean()\n", "session.targets[rows]).mean() * (100 if step >= 80 else 1)\n"),
    ),
    "transformers": (
        (
            '        return {"loss": loss_fn(self.network(inputs), labels).mean()}\n',
            "        self.calls = getattr(self, 'calls', -1) + 1\n"
            "        loss = loss_fn(self.network(inputs), labels)\n"
            '        return {"loss": loss.mean() * (100 if self.calls >= 80 else 1)}\n',
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", CLIPPED)
def test_gradients_that_jump_are_seen_although_they_are_clipped_before_they_are_told(splits, tmp_path, way):
    own_trainers.needs(way)
    folder = own_trainers.use_case(tmp_path / "toy", own_trainers.documented(way), *CLIPPED[way])
    result = run_stage(own_trainers.job(splits, folder, tmp_path / "out", "full"))
    found = next(alarm for alarm in result.alarms if alarm.monitor in ("loss_spike", "gradient_spike"))
    assert found.onset == 80
    incident = read_incident(tmp_path / "out" / "incidents" / f"{found.step}-{found.monitor}")
    before, after = (
        [seen.grad_norm for seen in incident.signals if (seen.step >= 80) == late] for late in (False, True)
    )
    assert min(after) > 2 * max(before[-20:])
    assert min(after) > 2
