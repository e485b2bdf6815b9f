"""What candidate and champion take to be served: in pairs of fresh processes that take turns.

Turns let other work on the machine, its heat and its caches meet both alike. The unit is the pair of processes and not
the call: two processes with the very same model differ by where their memory lies, call after call.
"""

from __future__ import annotations

import contextlib
import importlib
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.figures import CANDIDATE, CHAMPION
from trainworthy.lifecycle.protocol.jobs import ServedArtifact, ServingJob
from trainworthy.lifecycle.protocol.results import ServingResult
from trainworthy.lifecycle.protocol.serving import Quantity, ServingFigure
from trainworthy.lifecycle.serving.process import Served, ServingError, serving
from trainworthy.lifecycle.serving.ratio import Span, paired_ratio
from trainworthy.lifecycle.tasks.kind import parts_of

ROUNDS, ONE_TURNS, BATCH_TURNS = 9, 7, 2
# Seconds and MB to the unit that is told.
_SCALE: dict[Quantity, float] = {"latency": 1000.0, "batch_latency": 1000.0, "cold_load": 1.0, "memory": 1.0}

Figures = dict[Quantity, Span]


def run_serving(job: ServingJob) -> ServingResult:
    """Measure both models. One that cannot be served leaves no figures and an error that names it."""
    artifacts = {CANDIDATE: job.candidate, CHAMPION: job.champion}
    _import_libraries()
    try:
        used = [_modules(name, artifact, job) for name, artifact in artifacts.items()]
        _import_shared(used[0] & used[1])
        rows = min(job.batch_rows, *(_at_once(artifact) for artifact in artifacts.values()))
        rounds = []
        for number in range(ROUNDS):
            say(f"serving: candidate and champion in turns, round {number + 1} of {ROUNDS}")
            rounds.append(_round(job, artifacts, rows, number))
    except ServingError as error:
        return ServingResult(error=str(error))
    return ServingResult(figures=tuple(_figure(name, rounds, rows) for name in _SCALE))


def _modules(name: str, artifact: ServedArtifact, job: ServingJob) -> set[str]:
    """What is imported once the model has answered; its files are then in memory, as they are for all that follow."""
    with serving(name, artifact, job, 1) as model:
        model.load()
        return model.modules()


def _at_once(artifact: ServedArtifact) -> int:
    """Rows that are answered at once: fewer where an answer has many places."""
    part = parts_of(artifact_kind(Path(artifact.path)), 2**31)[0]
    return part.stop


def _import_libraries() -> None:
    """What every model needs."""
    import torch._dynamo  # noqa: F401


def _import_shared(modules: set[str]) -> None:
    """Import what both models use of packages that are here already, before processes are forked.

    Else nine tenths of a small model's cold load were the modules that any exported graph needs.
    """
    here = {name.partition(".")[0] for name in sys.modules}
    for name in sorted(modules - sys.modules.keys()):
        if name.partition(".")[0] in here:
            # One that can only be imported in its own order is imported by each process then.
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _round(job: ServingJob, artifacts: Mapping[str, ServedArtifact], rows: int, number: int) -> dict[str, Figures]:
    """One pair of processes; the first is the other one each time."""
    order = (CANDIDATE, CHAMPION) if number % 2 == 0 else (CHAMPION, CANDIDATE)
    with contextlib.ExitStack() as stack:
        served = {name: stack.enter_context(serving(name, artifacts[name], job, rows)) for name in order}
        by_model: dict[str, Figures] = {}
        for name, model in served.items():
            seconds, mib = model.load()
            by_model[name] = {"cold_load": seconds}
            if mib is not None:
                by_model[name]["memory"] = Span(mib, mib)
        single, batch = _in_turns(served, "one", ONE_TURNS), _in_turns(served, "batch", BATCH_TURNS)
        for name, figures in by_model.items():
            figures["latency"], figures["batch_latency"] = single[name], batch[name]
    return by_model


def _in_turns(served: Mapping[str, Served], question: str, turns: int) -> dict[str, Span]:
    """Medians of so many calls of each model.

    Before one of one row is another that does not count: the other model's threads may still spin on the cores, and
    its values lie in the caches. Beside a batch that is nothing.
    """
    spans_of_model: dict[str, list[Span]] = {name: [] for name in served}
    for turn in range(turns):
        for name in served if turn % 2 == 0 else reversed(tuple(served)):
            if question == "one":
                served[name].call(question)
            spans_of_model[name].append(served[name].call(question))
    return {name: Span(_median(span.least for span in spans), _median(span.most for span in spans))
            for name, spans in spans_of_model.items()}  # fmt: skip


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def _figure(quantity: Quantity, rounds: Sequence[Mapping[str, Figures]], rows: int) -> ServingFigure:
    if any(quantity not in figures for by_model in rounds for figures in by_model.values()):
        return ServingFigure(quantity=quantity, told="the system does not tell the peak of a process' memory")
    pairs = [(by_model[CANDIDATE][quantity], by_model[CHAMPION][quantity]) for by_model in rounds]
    ratio, scale = paired_ratio(pairs), _SCALE[quantity]
    return ServingFigure(
        quantity=quantity,
        candidate=_median(first.most for first, _ in pairs) * scale,
        champion=_median(second.most for _, second in pairs) * scale,
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        rounds=len(pairs),
        rows=rows if quantity in ("batch_latency", "memory") else 1,
        busy=sum(first.busy or second.busy for first, second in pairs),
    )
