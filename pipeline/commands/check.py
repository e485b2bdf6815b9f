"""trainworthy check: what is wrong with a use case, in seconds, without training."""

from __future__ import annotations

import argparse
import time

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "check",
        help="validate a use case's files and try its functions, in seconds; exit code 1 if something is wrong",
        description="Validates use_case.yaml and contract.yaml, and tries the functions of model.py on rows that are "
        "made from the contract. Reads no data and trains nothing.",
    )
    parser.add_argument("use_case")
    parser.add_argument(
        "--fix",
        "--mend",  # its earlier name
        action="store_true",
        help="first write what follows from other files: the kind of task, if it is missing",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="also ask what preflight asks of network, loss and declarations without training: on rows of the newest "
        "snapshot, or on made ones",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="with --quick: name each check that passed, does not apply or is left out",
    )
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print what is wrong and what is well, a line for each part or of --quick in brief; 1 if anything is wrong."""
    from trainworthy.pipeline.check import Part, check_use_case, parts_text, problems_text
    from trainworthy.pipeline.missing_task import write_missing_task
    from trainworthy.pipeline.quick import quick_parts

    if parsed.fix:
        print(write_missing_task(parsed.use_case))
    started = time.perf_counter()
    told: list[Part] = []

    def tell(wrong: list[Part]) -> None:
        told.extend(wrong)
        print(problems_text(wrong), flush=True)

    parts = quick_parts(parsed.use_case) if parsed.quick else check_use_case(parsed.use_case, tell)
    brief = parsed.quick and not parsed.verbose
    print(parts_text(parsed.use_case, parts, time.perf_counter() - started, brief=brief, told=told))
    return 0 if all(part.well for part in parts) else 1
