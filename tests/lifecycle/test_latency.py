"""The time of an answer by clocks that the test moves: other work's share is not the model's, its own waits are."""

import pytest

from trainworthy.lifecycle.latency import CALLS, ROUNDS, WARM_UP, Clocks, measure_latency

LIMIT = 50.0


class Machine:
    """An answer of `cpu` ms on the thread that asks, `helper` ms on another at once, `sleeps` ms of its own waiting.

    `waits` gives, call by call, how many ms the asking thread is kept from a core, `elsewhere` the helper.
    """

    def __init__(self, cpu: float, helper: float = 0.0, sleeps: float = 0.0, waits=lambda call: 0.0, elsewhere=0.0):
        self.cpu, self.helper, self.sleeps, self.waits, self.elsewhere = cpu, helper, sleeps, waits, elsewhere
        self.wall = self.own = self.all = self.calls = 0.0
        self.waited = {"main": 0.0, "helper": 0.0}
        self.tells = True

    def answer(self, _call: int) -> None:
        waits = self.waits(int(self.calls))
        self.calls += 1
        self.wall += (max(self.cpu + waits, self.helper + self.elsewhere) + self.sleeps) / 1000
        self.own += self.cpu / 1000
        self.all += (self.cpu + self.helper) / 1000
        self.waited["main"] += waits / 1000
        self.waited["helper"] += self.elsewhere / 1000

    def measured(self, limit_ms: float | None = LIMIT):
        return measure_latency(self.answer, limit_ms, Clocks(
            wall=lambda: self.wall, thread_cpu=lambda: self.own, process_cpu=lambda: self.all,
            waits=lambda: dict(self.waited) if self.tells else None, thread="main", load=lambda: (4.0, 3.0, 2.0),
            cores=2,
        ))  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "status"),
    [
        (Machine(11.1), "pass"),
        (Machine(51.0), "fail"),
        # Beside other jobs: 11.1 ms that take 57.5, and 60 ms that take more.
        (Machine(11.1, waits=lambda call: 46.4), "pass"),
        (Machine(80.0, waits=lambda call: 200.0), "fail"),
        # Near the limit, beside other work, processor time itself is too long by up to half.
        (Machine(60.0, waits=lambda call: 60.0), "insufficient"),
        # What the model waits for by itself is its own, on an idle machine and beside other jobs.
        (Machine(1.0, sleeps=60.0), "fail"),
        (Machine(1.0, sleeps=80.0, waits=lambda call: 40.0), "fail"),
        # Two threads that compute at once take twice the processor time of the answer.
        (Machine(30.0, helper=30.0), "pass"),
        (Machine(30.0, helper=30.0, waits=lambda call: 30.0, elsewhere=30.0), "pass"),
        # A thread of the model's own had the core: so much work takes 60 ms on two cores at least.
        (Machine(10.0, helper=110.0, waits=lambda call: 110.0), "insufficient"),
        # How long the answer would take without the other thread's wait cannot be told.
        (Machine(30.0, helper=30.0, elsewhere=40.0), "insufficient"),
    ],
)
def test_latency_within_the_limit_is_the_models_own(machine, status):
    assert machine.measured().within(LIMIT) == status


def test_latency_of_a_busy_machine_shows_both_times_and_the_load():
    busy = Machine(11.1, waits=lambda call: 46.4).measured()
    assert busy.told == (
        "11.1 ms, without the waits for cores that other work had "
        f"(57.5 ms with them, at load 4.0 on {busy.cores} cores)"
    )
    assert Machine(11.1).measured().told == "11.1 ms"


def test_latency_above_the_limit_is_measured_again_until_it_is_kept_and_no_more():
    first_round = WARM_UP + CALLS
    passing = Machine(30.0, helper=30.0)
    passing.waits = lambda call: 0.0
    passing.elsewhere = 40.0
    original = passing.answer

    def quieter(_call: int) -> None:
        passing.elsewhere = 40.0 if passing.calls < first_round else 0.0
        original(_call)

    passing.answer = quieter
    found = passing.measured()
    assert (found.rounds, found.within(LIMIT)) == (2, "pass")
    slow = Machine(51.0)
    assert (slow.measured().rounds, slow.calls) == (ROUNDS, WARM_UP + ROUNDS * CALLS)
    unlimited = Machine(51.0)
    assert (unlimited.measured(None).rounds, unlimited.calls) == (1, first_round)


@pytest.mark.parametrize(("cpu", "status"), [(11.1, "pass"), (51.0, "insufficient"), (80.0, "fail")])
def test_latency_where_the_system_tells_of_no_waits_goes_by_the_wall_and_processor_time(cpu, status):
    machine = Machine(cpu)
    machine.tells = False
    assert machine.measured().within(LIMIT) == status
    machine.waits = lambda call: 46.4
    assert machine.measured().within(LIMIT) == ("insufficient" if status == "pass" else status)
