"""Every planted fault and every healthy training of this repository as a case of one form, and what each check tells.

A case goes through what there is for it: preflight's battery, a training watched by the monitors, and for tables the
product's own smoke and pilot. What each check found is kept, so that rules can be left out afterwards without a run.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks import diagnosis, references
from benchmarks.general_exchange import NotAskedError, exchanged, job_of_subject
from benchmarks.gradients import ON_PURPOSE
from benchmarks.healthy import HEALTHY
from benchmarks.healthy_dynamics import DYNAMIC
from benchmarks.healthy_fresh import FRESH_HEALTHY
from benchmarks.healthy_gradients import CLAIMS, DEVIATES, HEALTHY_GRADIENTS, NOT_TRAINED
from benchmarks.monitored import Before, monitored
from benchmarks.planted import PLANTED
from benchmarks.planted_dynamics import FAULTS
from benchmarks.planted_fresh import FRESH
from benchmarks.planted_gradients import PLANTED_GRADIENTS
from benchmarks.planted_held_back import HELD_BACK
from benchmarks.planted_values import VALUES
from benchmarks.preflight import kind
from benchmarks.references_cases import HEALTHY as TABLES
from benchmarks.references_cases import PLANTED as PLANTED_TABLES
from benchmarks.setup import Setup
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.catalogue import SUBJECT_CHECKS
from trainworthy.lifecycle.engine.preflight.configuration import checks as configuration
from trainworthy.lifecycle.engine.preflight.overfit import checks as overfit
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.preflight.start import checks as start
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.protocol.jobs import PreflightJob, TrainJob
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.split import HashSplit, Shares

# Begins the names under which the answers of the exchange of parts are kept.
EXCHANGE = "exchange "
# And those of what a pilot tells of a case of tensors.
PILOT = "pilot "
Stage = Literal["preflight", "smoke", "pilot", "training"]
Says = Literal["alarm", "warning", "pass", "unknown"]
# A case that takes more of the processor is not run: it says nothing of any rule. Beside other work a case of 25 such
# seconds took longer than 240 by the clock, which therefore has a limit of its own, for a case that waits.
MOST_CPU_SECONDS, MOST_SECONDS = 240, 3600
# After a limit it is told again so often, since what raises in an exchange ends only that exchange.
AGAIN_SECONDS = 5
# Monitors that look at the clock, at other processes or at memory: what they find depends on the machine.
OF_THE_MACHINE = (
    "slow_files", "slow_files_later", "slower_updates", "ever_slower_updates", "leak", "leak_of_graphs", "lock_is_held",
    "process_is_silent",
)  # fmt: skip
# Their trainings of 2,220 updates take 2 to 15 CPU seconds; those of cnn and unet up to 30.
HOSTS = ("mlp", "gpt")


@dataclass(frozen=True)
class Told:
    """What a rule said of a case, in which stage; `cause` is a monitor's, `step` its update. `cpu` are its seconds."""

    rule: str
    stage: Stage
    says: Says
    code: str = ""
    cause: str = ""
    observed: float | None = None
    threshold: float | None = None
    step: int | None = None
    cpu: float = 0.0


@dataclass(frozen=True, eq=False)
class Case:
    """`fault` is what was planted, "" in a healthy case; `host` is what it was planted in.

    `named` and `causes` are rules and causes that say it rightly, where the bench that planted it knows. `meant` rules
    say something true of a healthy case, so that their warning is no false one. `job` is the training whose parts are
    exchanged, None where nobody asks; it raises NotAskedError where they can't be. A case of `tensors` is no use case
    by itself, so that its run has no pilot.
    """

    name: str
    fault: str
    host: str
    run: Callable[[], Iterable[Told]]
    named: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    meant: tuple[str, ...] = ()
    job: Callable[[Path], TrainJob] | None = None
    tensors: bool = False


def asked(case: Case) -> dict[str, Any]:
    """What the exchange of parts says of the case (general_exchange.py), with the seconds that it took."""
    assert case.job is not None
    with _at_most(MOST_CPU_SECONDS, MOST_SECONDS):
        return {"name": f"{EXCHANGE}{case.name}", **exchanged(case.job)}


def piloted(case: Case) -> dict[str, Any]:
    """What the pilot of the use case tells that a case of tensors stands for; nothing where it is none."""
    assert case.job is not None
    told: list[Told] = []
    broke, began, job = "", time.process_time(), case.job
    try:
        with _at_most(MOST_CPU_SECONDS, MOST_SECONDS), tempfile.TemporaryDirectory() as made:
            told.extend(_of_stage(job(Path(made)), "pilot"))
    except NotAskedError:
        pass
    except Exception as error:
        broke = type(error).__name__
    return {
        "name": f"{PILOT}{case.name}", "broke": broke, "cpu": round(time.process_time() - began, 3),
        "told": [asdict(one) for one in told],
    }  # fmt: skip


def ran(case: Case) -> dict[str, Any]:
    """The case with all that was told of it. `broke` names an error that ended it, at `told`'s last stage."""
    told: list[Told] = []
    broke, began = "", time.process_time()
    try:
        with _at_most(MOST_CPU_SECONDS, MOST_SECONDS):
            told.extend(case.run())
    except Exception as error:
        broke = type(error).__name__
    return {
        "name": case.name, "fault": case.fault, "host": case.host, "named": case.named, "causes": case.causes,
        "meant": case.meant, "broke": broke, "cpu": round(time.process_time() - began, 3),
        "told": [asdict(one) for one in told],
    }  # fmt: skip


@contextmanager
def _at_most(cpu_seconds: float, seconds: float) -> Iterator[None]:
    """Raises TimeoutError in what takes more of the processor, or longer by the clock."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError

    limits = (
        (signal.SIGPROF, signal.ITIMER_PROF, cpu_seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, seconds),
    )  # fmt: skip
    before = [signal.signal(number, end) for number, *_ in limits]
    try:
        for _, timer, most in limits:
            signal.setitimer(timer, most, AGAIN_SECONDS)
        yield
    finally:
        for (number, timer, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def cases(short: bool = False) -> list[Case]:
    """All of them, what is planted first. In a short run one of each way to run them."""
    if short:
        return [next(group()) for group in (_planted, _tables, partial(_healthy, 1))]
    groups = (
        _planted, _gradients, _tables, _mistakes, _dynamics, *(partial(_healthy, seed) for seed in range(3)),
        partial(_styles, 0), partial(_styles, 1),
    )  # fmt: skip
    return [case for group in groups for case in group()]


def _planted() -> Iterator[Case]:
    for name, (make, ids) in {**PLANTED, **HELD_BACK, **FRESH}.items():
        yield Case(
            f"planted {name}", name, "", partial(_of_subject, lambda make=make: make(0)), named=ids,
            job=partial(_job, name, lambda make=make: make(0)), tensors=True,
        )  # fmt: skip


def _gradients() -> Iterator[Case]:
    for name, (make, told) in PLANTED_GRADIENTS.items():
        if told != "nothing":
            named = ("wiring.gradient_is_slope", "wiring.gradients")
            yield Case(
                f"gradient {name}", f"gradient {name}", "", partial(_of_subject, lambda make=make: make(0).subject()),
                named=named, causes=("gradient_is_no_slope",),
                job=partial(_job, name, lambda make=make: make(0).subject()), tensors=True,
            )  # fmt: skip


def _dynamics() -> Iterator[Case]:
    """Each fault on one of two hosts in turn: all four hosts of each take hours."""
    for turn, (name, fault) in enumerate({**FAULTS, **VALUES}.items()):
        if name not in OF_THE_MACHINE:
            hosts = [host for host in fault.hosts if host in HOSTS]
            host = hosts[turn % len(hosts)]
            planted = fault.make(host, 0)
            run = partial(_of_dynamics, lambda fault=fault, host=host: fault.make(host, 0))
            yield Case(
                f"training {name}", f"training {name}", host, run, named=planted.found, causes=planted.cause,
                job=partial(_job_of_dynamics, host, lambda fault=fault, host=host: fault.make(host, 0)), tensors=True,
            )  # fmt: skip


def _tables() -> Iterator[Case]:
    for case in (*PLANTED_TABLES, *TABLES):
        fault = f"table {case.name}" if case in PLANTED_TABLES else ""
        job = partial(_pilot_of_table, case)
        yield Case(f"table {case.name}", fault, case.name, partial(_of_job, job), job=job)


def _mistakes() -> Iterator[Case]:
    for host in ("number",):
        for name, mistake in diagnosis.MISTAKES.items():
            job = partial(_pilot_of_mistake, host, mistake)
            fault = f"mistake {name}" if mistake.parts else ""
            yield Case(f"mistake {name} {host}", fault, host, partial(_of_job, job), job=job)


def _pilot_of_table(case: references.Case, folder: Path) -> TrainJob:
    return references.job_of(case, "pilot", 0, folder)


def _pilot_of_mistake(host: str, mistake: diagnosis.Mistake, folder: Path) -> TrainJob:
    return diagnosis.job_of(diagnosis.HOSTS[host], mistake, folder).model_copy(update={"stage": "pilot"})


def _job(host: str, make: Callable[[], Subject], folder: Path) -> TrainJob:
    return job_of_subject(host, make(), folder)


def _job_of_dynamics(host: str, make: Callable[[], Any], folder: Path) -> TrainJob:
    """Raises NotAskedError of what is planted while it trains: no part that is exchanged holds it."""
    planted = make()
    if planted.before is not None:
        raise NotAskedError("planted between updates, and in no part of a use case")
    return job_of_subject(host, planted.subject, folder)


def _healthy(seed: int) -> Iterator[Case]:
    """Battery and training of the first seed, of the others the battery alone."""
    run = _of_subject if seed == 0 else _battery
    for name, make in {**HEALTHY, **FRESH_HEALTHY, **DYNAMIC}.items():
        yield Case(
            f"healthy {name} {seed}", "", name, partial(run, lambda make=make: make(seed)),
            meant=("wiring.gradient_is_slope",) if name in ON_PURPOSE else (),
            job=partial(_job, name, lambda make=make: make(0)) if seed == 0 else None, tensors=True,
        )  # fmt: skip


def _styles(seed: int) -> Iterator[Case]:
    """Networks in styles of their own, with what a use case of them would declare."""
    run = _of_subject if seed == 0 else _battery
    for name, make in HEALTHY_GRADIENTS.items():
        if name not in NOT_TRAINED:
            claimed = partial(_claimed, make, seed, CLAIMS.get(name, PreflightSpec()))
            meant = ("wiring.gradient_is_slope",) if name in DEVIATES else ()
            yield Case(f"style {name} {seed}", "", name, partial(run, claimed), meant=meant)


def _claimed(make: Callable[[int], Setup], seed: int, claims: PreflightSpec) -> Subject:
    return replace(make(seed), claims=claims).subject()


def _of_subject(make: Callable[[], Subject]) -> Iterator[Told]:
    yield from _battery(make)
    yield from _watched(make())


def _of_dynamics(make: Callable[[], Any]) -> Iterator[Told]:
    """What is planted while it trains cannot be met by preflight."""
    planted = make()
    if planted.before is None:
        yield from _battery(lambda: planted.subject)
        planted = make()
    yield from _watched(planted.subject, planted.before)


def _battery(make: Callable[[], Subject]) -> Iterator[Told]:
    """As run_battery, each check's own CPU seconds beside it."""
    subject, done = make(), ()
    first = (start.FINITE_WEIGHTS, configuration.KERNELS)
    for check in (*first, *SUBJECT_CHECKS, *overfit.CHECKS):
        began = time.process_time()
        (trial,) = run_checks(
            (check,), subject, device="cpu", not_applicable=subject.claims.not_applicable, earlier=done
        )
        done += (trial,)
        if trial.status != "not_applicable":
            yield _of_trial(trial, time.process_time() - began)
        if check in first and trial.status == "fail":
            return


def _of_trial(trial: Trial, cpu: float) -> Told:
    says = kind(trial)
    return Told(
        trial.check, "preflight", "unknown" if says == "not_told" else says, trial.code,  # pyright: ignore[reportArgumentType]
        observed=_number(trial.observed), threshold=_number(trial.threshold), cpu=round(cpu, 4),
    )  # fmt: skip


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _watched(subject: Subject, before: Before | None = None) -> Iterator[Told]:
    for alarm in monitored(subject, before=before).alarms:
        yield _of_alarm(alarm, "training")


def _of_alarm(alarm: Alarm, stage: Stage) -> Told:
    says: Says = "alarm" if alarm.severity == "critical" else "warning"
    return Told(alarm.monitor, stage, says, cause=alarm.rule, step=alarm.step)


def _of_job(make: Callable[[Path], TrainJob]) -> Iterator[Told]:
    """Preflight's battery on a sample of the table, then smoke and pilot by the product."""
    with tempfile.TemporaryDirectory() as made:
        job = make(Path(made))
        yield from _battery(lambda: _sample_of(job))
        for stage in ("smoke", "pilot"):
            yield from _of_stage(_job_of_stage(job, stage), stage)


def _of_stage(job: TrainJob, stage: Literal["smoke", "pilot"]) -> Iterator[Told]:
    began = time.process_time()
    result = run_stage(job)
    for alarm in result.alarms:
        yield _of_alarm(alarm, stage)
    arms = () if result.references is None else result.references.arms
    for check in training_checks(stage, result):
        says: Says = "pass" if check.status in ("pass", "not_applicable") else "unknown"
        if check.status in ("fail", "error"):
            says = "alarm" if check.severity == "error" else "warning"
        cpu = sum(arm.cpu_seconds for arm in arms) if check.name == "references" else 0.0
        yield Told(
            f"stage.{check.name}", stage, says, check.code, observed=_number(check.observed),
            threshold=_number(check.threshold), cpu=round(cpu, 4),
        )  # fmt: skip
    yield Told("(stage)", stage, "pass", cpu=round(time.process_time() - began, 3))


def _job_of_stage(job: TrainJob, stage: str) -> TrainJob:
    return job.model_copy(update={"stage": stage, "out": f"{job.out}-{stage}", "identity": f"{job.identity}:{stage}"})


def _sample_of(job: TrainJob) -> Subject:
    same = {name: getattr(job, name) for name in (
        "use_case_folder", "out", "device", "rows", "training", "stages", "hyperparameters", "training_file",
        "validation_file",
    )}  # fmt: skip
    shares = Shares(validation=0.2, calibration=0.2, benchmark=0.2)
    asked = PreflightJob(
        **same, claims=PreflightSpec(), split=HashSplit(by="hash", resample_by=job.rows.group, salt="a", shares=shares),
        prediction_time=None, data_folders=(), memory_limit_bytes=4 * 2**30,
    )  # fmt: skip
    return draw_sample(asked, read_rows(job.training_file, job.rows), "cpu").subject
