"""Faults of threads and processes: calls that never come back, and replicas that are no longer equal.

A hang is told here after a second and 50 usual updates, not after five minutes, by the product's heartbeat. Replicas
are two processes of gloo on one machine: each trains on rows of its own, and every gradient is their mean.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import distributed, multiprocessing

from benchmarks.planted_dynamics import ONSET, Fault, Planted, host
from trainworthy.lifecycle.engine.training.state import TrainState

T = TypeVar("T")
# What hangs does so for this long, in seconds, so that a run goes on.
HELD, LEAST = 8.0, 1.0


def hangs(wait: Callable[[], None], held_back: bool) -> Fault:
    """From ONSET on, in the middle of one forward pass, `wait` is called."""

    def planted(name: str, seed: int) -> Planted:
        setup, now = host(name, seed), [0]
        given = setup.loss_fn

        def before(state: TrainState, step: int) -> None:
            now[0] = step

        def loss_fn(outputs: object, targets: torch.Tensor) -> torch.Tensor:
            if now[0] == ONSET:
                wait()
            return given(outputs, targets)

        subject = replace(setup, loss_fn=loss_fn).subject()
        return Planted(subject, ONSET, ("hang",), ("hang",), before, hang_seconds=LEAST)

    return Fault(planted, held_back)


def lock_is_held() -> None:
    """Another thread has a lock and does not give it back."""
    lock, held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(HELD)

    threading.Thread(target=hold).start()
    held.wait()
    with lock:
        pass


def process_is_silent() -> None:
    """Another process owes an answer."""
    other = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({HELD})"], stdout=subprocess.PIPE)
    other.communicate()


def replicas(breaks: Callable[[TrainState, list[bool]], None] | None, at: int, held_back: bool) -> Fault:
    """`breaks` is called before update `at` on every process, with whether gradients are shared, to be changed."""

    def planted(name: str, seed: int) -> Planted:
        subject, shared, rank = host(name, seed).subject(), [True], distributed.get_rank()
        plan = subject.plan.model_copy(update={"seed": subject.plan.seed + rank})

        def before(state: TrainState, step: int) -> None:
            if step == 0:
                _share_gradients(state, shared)
            if step == at and breaks is not None:
                breaks(state, shared)

        found = ("replicas_apart",)
        return Planted(replace(subject, plan=plan), at, found, ("processes_apart",), before)

    return Fault(planted, held_back, processes=2)


def _share_gradients(state: TrainState, shared: list[bool]) -> None:
    def mean(parameter: torch.Tensor) -> None:
        if shared[0] and parameter.grad is not None:
            distributed.all_reduce(parameter.grad)
            parameter.grad /= distributed.get_world_size()

    for parameter in state.parameters:
        parameter.register_post_accumulate_grad_hook(mean)


def own_start(state: TrainState, shared: list[bool]) -> None:
    """One process drew other weights, and nobody sent the first one's."""
    with torch.no_grad():
        for parameter in state.parameters:
            parameter.add_(1e-3 * distributed.get_rank())


def no_longer_shared(state: TrainState, shared: list[bool]) -> None:
    """A `no_sync` that is never left."""
    shared[0] = False


PROCESSES: dict[str, Fault] = {
    "lock_is_held": hangs(lock_is_held, False),
    "process_is_silent": hangs(process_is_silent, True),
    "own_start": replicas(own_start, 0, False),
    "no_longer_shared": replicas(no_longer_shared, ONSET, True),
}
# For comparison.
IN_STEP = replicas(None, 0, False)


def in_two_processes(run: Callable[..., T], *asked: object) -> T:
    """What the first of two processes of one group gives; both run the same with one thread."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    both = [context.Process(target=_one, args=(rank, address, answers, run, asked)) for rank in range(2)]
    for one in both:
        one.start()
    for one in both[1:]:
        one.join()
    if both[1].exitcode:
        both[0].kill()
        raise RuntimeError(f"the second process ended with {both[1].exitcode}")
    # Before the first one ends, which waits until its answer is read.
    found = answers.get()
    both[0].join()
    return found


def _one(rank: int, address: str, answers: multiprocessing.SimpleQueue, run: Callable[..., T], asked: object) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    found = run(*asked)
    if rank == 0:
        answers.put(found)
    distributed.destroy_process_group()
