"""What the host looks at around the worker: the sums and the stores before it starts, spot machines after it.

No torch here: Dagster's process runs this.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainworthy.lifecycle.gates.catalogue import CATALOGUE, check_of
from trainworthy.lifecycle.gates.check import CPU_ONLY, Check, untried_as_declared
from trainworthy.lifecycle.gates.declared import Host, checkpoints_survive, steps_add_up, stores_are_reachable
from trainworthy.lifecycle.gates.preflight import for_device
from trainworthy.lifecycle.gates.trials import on_host, run_checks
from trainworthy.lifecycle.protocol.checks import stops_the_step
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial

HOST_CHECKS: tuple[Check[Host], ...] = (
    check_of("configuration.steps", steps_add_up),
    check_of("configuration.stores_reachable", stores_are_reachable),
)
AFTER_CHECKS: tuple[Check[Host], ...] = (check_of("configuration.spot_checkpoints", checkpoints_survive),)
NOT_STARTED = "not tried, since what is declared cannot work: the worker was not started"


def before_worker(host: Host) -> tuple[Trial, ...]:
    """The trials of what needs no worker."""
    return _tried(HOST_CHECKS, host)


def not_started(trials: tuple[Trial, ...], host: Host) -> PreflightResult:
    """The answer of a preflight whose worker was not started: its checks are untried, all told at once."""
    declared = host.spec.preflight.not_applicable
    left = {"worker", "after", *(("script",) if host.spec.trainer else ())}
    rest = (untried_as_declared(check, NOT_STARTED, declared) for check in CATALOGUE if check.runs in left)
    return PreflightResult(
        memory=None, seconds=None, trials=(*trials, *rest), untried=NOT_STARTED, ended_early=True, device="host"
    )


def with_host(result: PreflightResult, trials: tuple[Trial, ...], host: Host, uses_cuda: bool) -> PreflightResult:
    """The worker's answer, the host's trials around it, and the device that each was seen on held against the job."""
    after = _tried(AFTER_CHECKS, host.after(result.seconds, result.step))
    for_job = tuple(for_device(trial, uses_cuda) for trial in result.trials)
    return result.model_copy(update={"trials": (*trials, *for_job, *after)})


def still_holds(recorded: tuple[Trial, ...], host: Host, uses_cuda: bool) -> bool:
    """True if a recorded preflight says of this machine and these declarations what a new one would.

    Compute, the interval of checkpoints and the stores are no part of its identity. What is told of the stores names
    them: one that was not there, such as a folder for copies of checkpoints, the worker has not tried.
    """
    devices = ("host", "cuda" if uses_cuda else "cpu")
    # A GPU may be here by now, which only the worker can tell.
    if any(trial.code == CPU_ONLY or trial.device not in devices for trial in recorded):
        return False
    before = {trial.check: trial for trial in recorded}
    first, after = before_worker(host), _tried(AFTER_CHECKS, host)
    known = all(trial.check in before and before[trial.check].status == trial.status for trial in (*first, *after))
    return known and all(_same(before[trial.check], trial) for trial in first)


def _same(trial: Trial, other: Trial) -> bool:
    compared = ("code", "about", "observed", "threshold")
    return all(getattr(trial, name) == getattr(other, name) for name in compared)


def stops(trials: Iterable[Trial]) -> bool:
    """True if one of them stops the step."""
    return any(stops_the_step(trial.status, trial.severity, trial.required) for trial in trials)


def _tried(checks: tuple[Check[Host], ...], host: Host) -> tuple[Trial, ...]:
    declared = host.spec.preflight.not_applicable
    return run_checks(checks, host, device="host", not_applicable=declared, around=on_host)
