"""trainworthy baseline: accept the warnings of today, so that only new ones and worse ones are told."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    summary = "which warnings of the newest run are new, accepted or gone; with --reason, accept those that are new"
    parser = commands.add_parser("baseline", help=summary)
    parser.add_argument("use_case")
    parser.add_argument("--reason", help="why the new ones are accepted: writes baseline.yaml of the use case")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print what is new, accepted and gone, or write the baseline. Exit code 1 if there is something new."""
    from datetime import date

    from trainworthy.lifecycle.errors import RecordError, SettingsError
    from trainworthy.lifecycle.gates.baseline import FILE, accepting, baseline_text, compared, read_baseline
    from trainworthy.lifecycle.protocol.records import STEPS
    from trainworthy.lifecycle.provenance import git_author
    from trainworthy.lifecycle.run_config import told_command
    from trainworthy.lifecycle.storage.state import write_atomic
    from trainworthy.resources.settings import read_settings, use_case_folder
    from trainworthy.resources.shared_state import records_of

    settings, name = read_settings(), parsed.use_case
    folder = use_case_folder(settings, name)
    if parsed.reason is not None and not parsed.reason.strip():
        raise SettingsError("no reason is given", value="--reason", fix="say in a few words why these are accepted")
    baseline, records = read_baseline(folder), records_of(settings)
    newest = {step: record for step in STEPS if (record := records.newest(name, step)) is not None}
    if not newest:
        fix = f"run: {told_command('preflight', name)}"
        raise RecordError("no step has a record yet, so there is nothing to accept", value=name, fix=fix)
    comparison = compared(baseline, {step: record.checks for step, record in newest.items()})
    groups = (("new", comparison.new), ("accepted", comparison.accepted), ("no longer found", comparison.stale))
    for title, warnings in groups:
        for warning in warnings:
            print(f"{title}: {warning.name}")
    print(", ".join(f"{len(warnings)} {title}" for title, warnings in groups))
    if parsed.reason is None:
        if comparison.new:
            print(f"accept what is new, if you have a reason: trainworthy baseline {name} --reason TEXT")
        return int(bool(comparison.new))
    written = accepting(baseline, comparison, " ".join(parsed.reason.split()), date.today(), git_author(folder))
    write_atomic(folder / FILE, baseline_text(written, name).encode())
    print(f"written: {folder / FILE}; commit it")
    return 0
