"""A short trial of a training script, in a process of its own.

`python -m trainworthy.lifecycle.engine.trainers.trial job.json trial.json` trains BEFORE + AFTER updates at once, then
BEFORE in another folder, and goes on there: by the way of a real stage. What the process had at its peak, and how long
an update takes, is what a stage will need.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from trainworthy.lifecycle.artifact import export_model
from trainworthy.lifecycle.engine.preflight.configuration.parameters import claim_of, matches
from trainworthy.lifecycle.engine.trainers.answers import squashed_twice
from trainworthy.lifecycle.engine.trainers.returned import answering_model
from trainworthy.lifecycle.engine.trainers.stage import ScriptRun, run_script
from trainworthy.lifecycle.engine.trainers.warned import warnings_of
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.stage import peak_memory_bytes
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.errors import TrainingError, TrainworthyError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.plan import MIN_STEPS
from trainworthy.lifecycle.processor import waited_for_core
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.task import error_line
from trainworthy.lifecycle.tasks.labels import kind_of_rows

BEFORE, AFTER = 4, 6
# Beyond it a script that never tells an update, or does not end when it is told to, is ended. Its waits for a core that
# other work had are taken off, for MOST_TIMES as long at most.
MOST_SECONDS, MOST_TIMES, LOOK_SECONDS = 180.0, 10, 1.0
# Of a log that is told.
LAST_LINES = 3


class ScriptTrial(Frozen):
    """What was seen. A `problem` ended it, and `fix` says what to do; each later field is as far as the trial came.

    `updates` were told; `went_on` if it made another one after it was told to end. `export_problem` is why its model
    cannot be exported. `saved`: it wrote a checkpoint when it was asked to end; `resumed_from` is the step it went on
    from, `equal` whether it ended with the same weights. Of a model that was `returned`, `parameters` counts all and
    `trains` those that train; `frozen` are others that nobody declares so, beside some that train, and `claim` is how
    they would be. `warnings` are torch's own of what it computed, `squashed_twice` what predict applies to outputs that
    are squashed already. Seconds are of the start until rows were ready with the script's imports, of an update, a
    checkpoint, scoring a row, and export.
    """

    problem: str = ""
    fix: str = ""
    updates: int = 0
    went_on: bool = False
    export_problem: str = ""
    saved: bool = False
    resumed_from: int = 0
    equal: bool = False
    resume_problem: str = ""
    warnings: tuple[str, ...] = ()
    squashed_twice: str = ""
    returned: bool = False
    trains: int = 0
    parameters: int = 0
    frozen: tuple[str, ...] = ()
    claim: str = ""
    start_seconds: float = 0.0
    update_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    row_seconds: float = 0.0
    export_seconds: float = 0.0
    peak_memory_bytes: int = 0


def try_script(job: TrainJob, folder: Path) -> ScriptTrial:
    """The trial's answer, from a process that is ended after MOST_SECONDS of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    job_file, answer, log = folder / "job.json", folder / "trial.json", folder / "log.txt"
    job_file.write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
    command = [sys.executable, "-m", "trainworthy.lifecycle.engine.trainers.trial", str(job_file), str(answer)]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = ended(process, MOST_SECONDS)
        finally:
            process.kill()
            process.wait()
        if code is None:
            fix = "call session.step at each update, and end the loop when session.should_stop is True"
            return ScriptTrial(problem=f"{job.trainer} did not end within {MOST_SECONDS:.0f} s", fix=fix)
    if not answer.is_file():
        last = " | ".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        fix = f"correct {job.trainer}, so that its process lives on"
        return ScriptTrial(problem=f"the process ended with {code} and left no answer: {last}"[:500], fix=fix)
    return ScriptTrial.model_validate_json(answer.read_bytes())


def ended(
    process: subprocess.Popen[bytes],
    most_seconds: float,
    now: Callable[[], float] = time.monotonic,
    waited: Callable[[int], float] = waited_for_core,
) -> int | None:
    """How the process ended; None once it has had `most_seconds`, its main thread's waits for a core left out."""
    began = now()
    while now() - began - min(waited(process.pid), (1 - 1 / MOST_TIMES) * (now() - began)) < most_seconds:
        try:
            return process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return None


def main(job_file: Path, answer: Path) -> None:
    """Try the job's script and write what was seen."""
    # Also where nobody is left to end it.
    signal.alarm(int(MOST_TIMES * MOST_SECONDS))
    job = JobFile.model_validate_json(job_file.read_bytes()).job
    assert isinstance(job, TrainJob)
    write_atomic(answer, canonical_json(try_here(job, job_file.parent).model_dump(mode="json")))


def try_here(job: TrainJob, folder: Path) -> ScriptTrial:
    """The trial in this process."""
    fields: dict[str, object] = {}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _try(job, folder, fields)
    except TrainworthyError as error:
        value = "" if error.value is None else f": {error.value}"
        fields |= {"problem": f"{error.problem}{value}"[:500], "fix": error.fix}
    except Exception as error:
        fields |= {"problem": _describe(error, job), "fix": f"correct that line of {job.trainer}"}
    return ScriptTrial.model_validate(fields)


def _try(job: TrainJob, folder: Path, fields: dict[str, object]) -> None:
    began = _process_began()
    with warnings_of(Path(job.use_case_folder)) as told:
        fields["warnings"] = told
        through = _ran(job, folder / "through", BEFORE + AFTER)
    log = through.log
    fields |= {"updates": log.done, "went_on": log.ignored}
    fields["start_seconds"] = time.time() - began - through.seconds + (log.seconds[0] if log.seconds else 0.0)
    if log.alarm is not None:
        raise TrainingError(log.alarm.evidence, fix=log.alarm.fix)
    if log.ignored:
        # It never got so far as to return its model.
        return
    fields["update_seconds"] = statistics.median(list(log.seconds)[1:] or log.seconds)
    fields["checkpoint_seconds"] = through.checkpoints.seconds
    model = answering_model(through.returned, job, through.prepared, through.device)
    fields |= _frozen(model, job)
    fields |= _scored(model, job, through, folder)
    fields["peak_memory_bytes"] = peak_memory_bytes()
    sha256 = parameters_sha256(model)
    try:
        cut = _ran(job, folder / "resumed", BEFORE)
        fields["saved"] = cut.checkpoints.step == BEFORE
        if fields["saved"]:
            resumed = _ran(job, folder / "resumed", BEFORE + AFTER)
            fields["resumed_from"] = resumed.log.resumed_from
            again = answering_model(resumed.returned, job, resumed.prepared, resumed.device)
            fields["equal"] = resumed.log.resumed_from == BEFORE and parameters_sha256(again) == sha256
    except TrainworthyError as error:
        fields["resume_problem"] = f"{error.problem}: {error.value}; {error.fix}"[:500]
    except Exception as error:
        fields["resume_problem"] = _describe(error, job)


def _frozen(model: torch.nn.Module, job: TrainJob) -> dict[str, object]:
    """Parameters that do not train, but for those that are declared frozen."""
    named = dict(model.named_parameters())
    trains = [name for name, parameter in named.items() if parameter.requires_grad]
    # A copy, such as an average, has no parameter that trains, and says nothing of the model that did.
    frozen = [name for name in named if trains and name not in trains and not matches(name, job.frozen)]
    return {
        "returned": True, "trains": len(trains), "parameters": len(named), "frozen": frozen,
        "claim": claim_of(frozen, trains, job.frozen) if frozen else "",
    }  # fmt: skip


def _ran(job: TrainJob, folder: Path, steps: int) -> ScriptRun:
    return run_script(
        job.model_copy(update={"out": str(folder), "stop_after_steps": steps}), Clock(), lambda: False, None
    )


def _scored(model: object, job: TrainJob, ran: ScriptRun, folder: Path) -> dict[str, object]:
    """What scoring a row and exporting take."""
    from typing import cast

    network, prepared = cast(torch.nn.Module, model), ran.prepared
    features, began = prepared.rows[list(job.rows.features)], time.perf_counter()
    predict_rows(prepared.task, network, prepared.preprocessing, features, ran.device, kind_of_rows(job.rows))
    fields: dict[str, object] = {"row_seconds": (time.perf_counter() - began) / len(features)}
    example = prepared.task.to_tensors(features.head(MIN_STEPS), prepared.preprocessing)
    on_device = {name: tensor.to(ran.device) for name, tensor in example.items()}
    fields["squashed_twice"] = squashed_twice(network, on_device, prepared.task)
    began = time.perf_counter()
    try:
        export_model(network, example, folder / "model.pt2")
    except Exception as error:
        fields["export_problem"] = _describe(error, job)
    return fields | {"export_seconds": time.perf_counter() - began}


def _process_began() -> float:
    import psutil

    return psutil.Process().create_time()


def _describe(error: BaseException, job: TrainJob) -> str:
    return error_line(error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features))[:500]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    say("the trial of the training script has ended")
