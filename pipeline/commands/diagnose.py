"""trainworthy diagnose: which part of a run's training is at fault, by exchanging one at a time."""

from __future__ import annotations

import argparse
import tempfile

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "diagnose",
        help="which part of a training is at fault: exchange one at a time for a standard one, and train again",
        description="Trains a run's pilot (or smoke) again as it was, or the pilot that a run did not come to since "
        "preflight stopped it, and then with one part exchanged: "
        "loss, optimizer and schedule, network, regularization, precision, inputs, training rows. Named is the part "
        "whose exchange lowers the validation loss most beyond what those do that go with it, with the figures. Runs "
        "the code of the use case as it is now. "
        "Exit code 1 if a part is named.",
    )
    parser.add_argument("run", help="a run's id, or its beginning; or a use case, for its newest run with a stage")
    parser.add_argument("--parts", nargs="+", metavar="PART", help="only these, in this order")
    parser.add_argument("--all", action="store_true", help="try every part; without it at most three")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the table and the answer; 1 if a part is at fault."""
    from trainworthy.lifecycle.gates.diagnosis import MOST_EXCHANGES, ORDER, parts_in_order
    from trainworthy.lifecycle.protocol.jobs import DiagnoseJob
    from trainworthy.lifecycle.protocol.results import DiagnoseResult
    from trainworthy.pipeline.diagnose import diagnosis_text, named_parts, notes, stage_of_run
    from trainworthy.resources.settings import read_settings
    from trainworthy.resources.shared_state import records_of
    from trainworthy.resources.worker_process import run_worker

    chosen_parts = named_parts(parsed.parts or ())
    report, training = stage_of_run(parsed.run)
    for note in notes(records_of(read_settings()), report, training):
        print(f"note: {note}")
    with tempfile.TemporaryDirectory() as out:
        answer = run_worker(
            DiagnoseJob(
                use_case_folder=training.use_case_folder,
                out=out,
                device=training.device,
                training=training,
                parts=chosen_parts or parts_in_order(report.checks),
                most=len(ORDER) if parsed.all or parsed.parts else MOST_EXCHANGES,
            )
        )
    assert isinstance(answer, DiagnoseResult)
    print(diagnosis_text(report, training, answer.diagnosis))
    return 1 if answer.diagnosis.at_fault else 0
