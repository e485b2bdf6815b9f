"""Monitors in real trainings of an MLP, a CNN, a U-Net and a causal transformer: healthy, and with a fault planted."""

import json
import mmap
import os
import socket
from dataclasses import replace

import pytest
import torch
import torch.multiprocessing as multiprocessing
from torch import nn

from benchmarks.monitored import monitored
from benchmarks.networks import HOSTS
from benchmarks.planted_dynamics import FAULTS
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.closer_look import memory_bytes
from trainworthy.lifecycle.engine.training.monitors.curve import Plateau
from trainworthy.lifecycle.engine.training.monitors.resources import MemoryGrowth, ReplicasApart
from trainworthy.lifecycle.engine.training.monitors.rows_and_replicas import (
    content_of,
    left_out,
    replica_checksums,
    row_numbers,
    row_sums,
)
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.memory_limit import device_limit_bytes, memory_limit_bytes
from trainworthy.lifecycle.spec.training import MonitorsSpec

STEPS = 61


def shortened(subject):
    return replace(subject, plan=subject.plan.model_copy(update={"last_step": STEPS}))


@pytest.mark.parametrize("host", HOSTS)
def test_healthy_training_raises_no_alarm(host):
    assert monitored(shortened(HOSTS[host](3).subject())).alarms == []


class FromZero(nn.Module):
    """A recurrent network whose state begins at zero, without a bias; `stuck` holds the state there."""

    def __init__(self, stuck):
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(16, 16, bias=False), nn.Linear(6, 16), nn.Linear(16, 1)
        self.stuck = stuck

    def forward(self, inputs):
        state, moved = torch.zeros(len(inputs["numbers"]), 16), torch.zeros(())
        for values in inputs["numbers"].chunk(2, 1):
            moved = (self.inner(state) + self.outer(values)).tanh()
            state = state * moved if self.stuck else moved
        return self.head(state + moved).squeeze(-1)


@pytest.mark.parametrize("stuck", [False, True])
def test_layer_is_dead_if_each_of_its_calls_gives_zeros(stuck):
    subject = replace(HOSTS["mlp"](3), network=lambda: FromZero(stuck)).subject()
    assert ("dead_layer" in {alarm.monitor for alarm in monitored(shortened(subject)).alarms}) is stuck


QUICK = ("detached_body", "head_alone", "gradient_kept", "same_batch", "group_of_rate_zero")
ON_HOSTS = [
    pytest.param(host, fault, marks=() if host == "mlp" else pytest.mark.slow) for host in HOSTS for fault in QUICK
]


@pytest.mark.parametrize(("host", "fault"), ON_HOSTS)
def test_planted_fault_is_told_with_its_cause_within_twenty_updates(host, fault):
    planted = FAULTS[fault].make(host, 3)
    seen = monitored(shortened(planted.subject), before=planted.before)
    told = seen.told(planted.found)
    assert told is not None
    assert told.step - planted.onset <= 20
    assert told.rule in planted.cause


LONGER = ("dead_by_bias", "rate_thousandfold", "same_inputs", "shuffled_targets", "few_rows")


@pytest.mark.slow
@pytest.mark.parametrize(("host", "fault"), [(host, fault) for fault in LONGER for host in FAULTS[fault].hosts])
def test_planted_fault_that_takes_longer_is_told(host, fault):
    planted = FAULTS[fault].make(host, 3)
    seen = monitored(planted.subject, before=planted.before, until=planted.found)
    assert seen.told(planted.found)


def test_state_of_all_monitors_goes_through_a_checkpoint():
    subject = shortened(HOSTS["mlp"](0).subject())
    state = subject.state()
    first = Watch(state.model, MonitorsSpec(), all_monitors(state, subject.plan), STEPS)
    monitors = all_monitors(state, subject.plan)
    monitored(subject, monitors)
    shown = Watch(state.model, MonitorsSpec(), monitors, STEPS).state_dict()
    first.load_state_dict(shown)
    assert first.state_dict() == shown


def test_window_that_an_interruption_cuts_is_shown_whole():
    """The plateau's finding needs the windows of an uninterrupted training, in which every update counts once."""
    subject = HOSTS["mlp"](0).subject()
    plan = subject.plan.model_copy(update={"last_step": 240})
    still, found = replace(subject.recipe, learning_rate=lambda step: 0.0), {}
    for ends in ([240], [47, 130, 240]):
        state, held = subject.state(), None
        for end in ends:
            monitors = [Plateau(240)]
            watch = Watch(state.model, MonitorsSpec(), monitors, 240)
            if held is not None:
                watch.load_state_dict(held)
            train(state, subject.training, plan, still, lambda state, update, end=end: state.step == end, watch)
            held = json.loads(json.dumps(watch.state_dict()))
        found[len(ends)] = [(one.monitor, one.step, one.evidence) for one in watch.alarms]
    assert found[1] == found[3]
    assert [monitor for monitor, *_ in found[1]] == ["plateau"]


@pytest.mark.parametrize(("leaked_bytes", "severities"), [(2**20, ["critical"]), (4, [])])
def test_leak_that_will_not_fit_is_critical_and_a_steady_process_is_not(leaked_bytes, severities):
    subject, kept = HOSTS["mlp"](0).subject(), []
    subject = replace(subject, plan=subject.plan.model_copy(update={"last_step": 241}))
    limit = memory_bytes(torch.device("cpu")) + 100 * 2**20
    every = all_monitors(subject.state(), subject.plan, memory_limit_bytes=limit)
    monitors = [one for one in every if isinstance(one, MemoryGrowth)]

    def leak(state, step):
        # Pages of its own: what other tests have freed would take up a tensor without any growth.
        kept.append(mmap.mmap(-1, leaked_bytes))
        kept[-1].write(bytes([1]) * leaked_bytes)

    seen = monitored(subject, monitors, before=leak)
    assert [alarm.severity for alarm in seen.alarms] == severities


def test_limit_of_a_training_on_a_cpu_is_what_the_process_may_use():
    limit = device_limit_bytes("cpu")
    assert limit == memory_limit_bytes()
    assert limit is None or limit > memory_bytes(torch.device("cpu"))


def test_parameter_that_was_replaced_is_left_out():
    state = HOSTS["mlp"](0).subject().state()
    assert left_out(state) == ()
    state.model.layers[4] = torch.nn.Linear(32, 1)
    assert left_out(state) == ("layers.4.weight", "layers.4.bias")


def test_fingerprint_of_rows_is_equal_whatever_their_order_and_no_other():
    subject = HOSTS["gpt"](0).subject()
    rows = torch.arange(32)
    made = [subject.training.take(one).inputs for one in (rows, rows.flip(0), rows + 1)]
    first, turned, other = (content_of(row_sums((inputs,)).numpy()) for inputs in made)
    assert first == turned != other
    assert row_numbers(subject.training, rows) != row_numbers(subject.training, rows + 1)
    assert row_numbers(subject.training.take(rows), rows) is None


def _train_apart(rank: int, port: int, answers) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    parameters = list(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)).parameters())
    alike = replica_checksums(parameters)
    if rank == 1:
        with torch.no_grad():
            parameters[2].add_(1e-6)
    answers.put((alike, replica_checksums(parameters)))
    torch.distributed.destroy_process_group()


def test_two_processes_see_that_their_weights_are_equal_and_then_apart():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    processes = [context.Process(target=_train_apart, args=(rank, port, answers)) for rank in range(2)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    first, second = answers.get(), answers.get()
    assert first == second
    (mine, other), (now, changed) = first
    assert mine == other
    assert [a != b for a, b in zip(now, changed, strict=True)] == [False, False, True, False]


def test_replicas_of_one_process_are_nothing_to_look_at():
    assert replica_checksums([torch.nn.Parameter(torch.ones(3))]) == ()
    assert ReplicasApart().state_dict() == {"_told": []}
