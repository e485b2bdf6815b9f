"""trainworthy replay: do the step of an incident again, or pack it for another machine."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "replay",
        help="do the update again at which a monitor raised an alarm: first bad operation, rows, layers",
        description="Loads the newest checkpoint before an incident, trains to its step and takes that update apart. "
        "Without an incident: lists them. Exit code 1 if the step does not come out as recorded, and for a training "
        "script of your own, whose updates only it can make: then it tells what was recorded. Runs the code of the "
        "use case; of a portable incident, the code in its folder: replay only what you would run.",
    )
    parser.add_argument("incident", nargs="?", help="the end of an incident's id, as 43-non_finite_loss, or a folder")
    parser.add_argument("--portable", action="store_true", help="pack a folder that replays on another machine alone")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of --portable; default: incident-<step>-<monitor>")
    parser.add_argument("--changed-code", action="store_true", help="try whether another model.py does it too")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print what the replay shows; 1 if the step was not reproduced."""
    from trainworthy.lifecycle.incidents.find import find_incident, known_incidents
    from trainworthy.lifecycle.incidents.text import known_text
    from trainworthy.resources.settings import read_settings

    if parsed.incident is None:
        print(known_text(known_incidents(read_settings().var)))
        return 0
    folder = find_incident(read_settings().var, parsed.incident)
    return _pack(folder, parsed.out) if parsed.portable else _replay(folder, changed_code=parsed.changed_code)


def _replay(folder: Path, *, changed_code: bool) -> int:
    from trainworthy.lifecycle.incidents.incident import read_incident
    from trainworthy.lifecycle.incidents.text import replay_text
    from trainworthy.lifecycle.protocol.jobs import ReplayJob
    from trainworthy.lifecycle.protocol.results import ReplayResult
    from trainworthy.resources.worker_process import run_worker

    incident = read_incident(folder)
    code = folder / incident.job.use_case_folder
    with tempfile.TemporaryDirectory() as out:
        answer = run_worker(
            ReplayJob(
                use_case_folder=str(code), out=out, device="auto", incident=str(folder), changed_code=changed_code
            )
        )
    assert isinstance(answer, ReplayResult)
    print(replay_text(incident, answer))
    return 0 if answer.reproduced in ("bit_for_bit", "within_tolerance") else 1


def _pack(folder: Path, out: Path | None) -> int:
    from trainworthy.lifecycle.incidents.incident import read_incident
    from trainworthy.lifecycle.protocol.jobs import PackJob
    from trainworthy.lifecycle.protocol.results import PackResult
    from trainworthy.resources.worker_process import run_worker

    incident = read_incident(folder)
    target = (out or Path(f"incident-{incident.name}")).absolute()
    code = folder / incident.job.use_case_folder
    with tempfile.TemporaryDirectory() as scratch:
        answer = run_worker(
            PackJob(use_case_folder=str(code), out=scratch, device="auto", incident=str(folder), target=str(target))
        )
    assert isinstance(answer, PackResult)
    print(f"{answer.folder}: {answer.bytes / 1e6:.1f} MB, the batches of {answer.updates} updates")
    print("it holds rows of the data as tensors, and their keys: give it only to who may see them")
    if answer.left_out:
        print(f"left out of the use case's folder, since only its Python code travels: {', '.join(answer.left_out)}")
    print(f"there: trainworthy replay {shlex.quote(target.name)}")
    return 0
