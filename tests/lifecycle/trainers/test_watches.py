"""The watches of a script's models by themselves: who is known again, by what, and what is left of the others."""

import gc
import json
import types
import weakref

import pytest

from trainworthy.lifecycle.engine.trainers.gradients import gradients_of
from trainworthy.lifecycle.engine.trainers.logbook import WatchedModels
from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.spec.training import MonitorsSpec

PLAN = Plan(rows=640, batch_size=32, steps_per_epoch=20, horizon_steps=400, first_step=0, last_step=400, seed=0)


def watches() -> WatchedModels:
    job = types.SimpleNamespace(training=types.SimpleNamespace(monitors=MonitorsSpec()), frozen=())
    return WatchedModels(job, PLAN, Clock(), Recorder())  # pyright: ignore[reportArgumentType]


def resumed(before: WatchedModels) -> WatchedModels:
    after = watches()
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    return after


def network(seed: int):
    import torch

    torch.manual_seed(seed)
    layers = torch.nn.Linear(12, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    return torch.nn.Sequential(*layers)


def adam(model):
    import torch

    return torch.optim.AdamW(model.parameters(), 1e-3)


def update(seen: WatchedModels, step: int, model, optimizer, *others) -> None:
    """One update by the optimizer, of which the script tells with all `others`."""
    import torch

    generator = torch.Generator().manual_seed(step)
    rows = torch.randn(32, 12, generator=generator)
    model.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(rows)[:, 0], (rows[:, 0] > 0).float())
    loss.backward()
    assert seen.look_back() is None
    watch, gradients = seen.over(model, step), gradients_of(model)
    assert watch is not None
    assert gradients is not None
    watch.weigh(step, [optimizer, *others])
    value = loss.item()
    watch.judge(seen.recorder.add(seen.clock, step, value, value * value, 32, 1e-3, *gradients))
    optimizer.step()
    watch.look_at_next()


def critical(seen: WatchedModels) -> list[Alarm]:
    return [alarm for alarm in seen.alarms if alarm.severity == "critical"]


def test_alarms_of_a_model_that_is_not_told_again_after_a_resume_are_kept():
    import torch

    before, encoder, head = watches(), network(0), torch.nn.Sequential(torch.nn.Linear(12, 1))
    weight, bias = list(encoder[0].parameters())
    torch.nn.init.zeros_(weight)
    torch.nn.init.constant_(bias, -100.0)
    first, second = adam(encoder), adam(head)
    for step in range(90):
        update(before, step, *((encoder, first) if step < 70 else (head, second)))
    assert "dead_layer" in [alarm.monitor for alarm in critical(before)]
    after = resumed(before)
    assert after.alarms == before.alarms
    update(after, 90, head, second)
    assert after.alarms == before.alarms
    assert resumed(after).alarms == before.alarms


def test_part_that_is_made_anew_under_its_name_is_watched_from_then_on():
    import torch

    seen, model = watches(), network(0)
    optimizer = adam(model)
    for step in range(200):
        if step == 50:
            model[2], model[4] = torch.nn.Linear(32, 32), torch.nn.Linear(32, 1)
            optimizer = adam(model)
        if step == 120:
            weight, bias = list(model[2].parameters())
            torch.nn.init.zeros_(weight)
            torch.nn.init.constant_(bias, -100.0)
        update(seen, step, model, optimizer)
        if step == 119:
            assert seen.alarms == ()
    assert ("dead_layer", ("3",)) in [(alarm.monitor, alarm.where) for alarm in critical(seen)]
    (watch,) = seen.all
    watch.leave()
    assert [len(module._forward_hooks) for module in model.modules()] == [0] * 6


@pytest.mark.parametrize("first", [0, 1])
def test_twins_keep_their_own_monitors_whichever_is_told_first_after_a_resume(first):
    before, twins = watches(), (network(1), network(2))
    pairs = [(model, adam(model)) for model in twins]
    for step in range(3):
        update(before, step, *pairs[step % 2])
    after = resumed(before)
    for step, number in enumerate((first, 1 - first)):
        update(after, 3 + step, *pairs[number])
    told = [(found._updates_told, found.state.model is twins[0]) for found in after.all]
    assert sorted(told) == [(2, False), (3, True)]


def test_monitors_in_a_checkpoint_of_another_version_start_anew_with_the_alarms_that_it_has():
    before, model = watches(), network(0)
    optimizer = adam(model)
    model.zero_grad()
    for step in range(60):
        # Of which it has none: an alarm.
        update(before, step, model, adam(network(1)))
    (held,) = before.state_dict()
    assert before.alarms
    for old in (held, [{"json": held["json"]}], [{"json": held["json"], "parameters": held["parameters"]}]):
        after = watches()
        after.load_state_dict(json.loads(json.dumps(old)))
        update(after, 60, model, optimizer)
        assert after.alarms == before.alarms
    for old in (None, {}, [{}], [held["json"]]):
        after = watches()
        after.load_state_dict(old)
        update(after, 60, model, optimizer)
        assert after.alarms == ()


def test_optimizers_that_are_made_anew_are_let_go_and_those_of_other_parts_are_kept():
    seen, model = watches(), network(0)
    body, head = model[:4], model[4:]
    first, made, alive = adam(body), None, []
    for step in range(10):
        made = adam(head)
        alive.append(weakref.ref(made))
        update(seen, step, model, *((first, made) if step == 3 else (made,)))
    made = None
    (watch,) = seen.all
    gc.collect()
    assert [one() is not None for one in alive] == [False] * 9 + [True]
    assert set(map(id, watch.state.optimizers)) == {id(first), id(alive[-1]())}
    # Told again, neither goes.
    update(seen, 10, model, first)
    assert set(map(id, watch.state.optimizers)) == {id(first), id(alive[-1]())}


def test_samples_of_parts_trained_by_turns_in_blocks_say_which_part_was_trained():
    seen, model = watches(), network(0)
    pair = adam(model[:4]), adam(model[4:])
    for step in range(101):
        turn = step // 15 % 2
        update(seen, step, model, pair[turn], pair[1 - turn])
    (watch,) = seen.all
    body = [(sample.step, sample.trainable[:4], sample.trainable[4:]) for sample in watch.watch.samples]
    told = {0: True, 20: False, 40: True, 60: True, 80: False}
    assert body == [(step, (trained,) * 4, (not trained,) * 2) for step, trained in told.items()]
