"""trainworthy contract: pin a reference, try the rules, draft a contract, review its columns, export it."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command and its actions."""
    parser = commands.add_parser(
        "contract", help="a data contract: review its columns, test its rules, pin, draft, export"
    )
    parser.set_defaults(command=lambda parsed: parser.print_help() or 2)
    actions = parser.add_subparsers(metavar="ACTION")
    test = actions.add_parser(
        "test",
        help="which rules can never fail? exit code 1 if there are any",
        description="Breaks a sample of rows in many ways, rule by rule, and lists the rules that nothing breaks.",
    )
    test.add_argument("use_case")
    test.add_argument(
        "--version", metavar="VERSION", help="published version; default: the declared one, if it is here"
    )
    test.set_defaults(command=run_test)
    pin = actions.add_parser(
        "pin",
        help="write reference.json: the distributions that rules compare with",
        description="Counts a published version of the dataset and writes reference.json beside contract.yaml.",
    )
    pin.add_argument("use_case")
    pin.add_argument("--version", metavar="VERSION", help="published version to count; default: the declared one")
    pin.set_defaults(command=run_pin)

    suggest = actions.add_parser(
        "suggest",
        help="draft a contract from a dataset version or from files",
        description="Drafts contract.yaml from rows, for review. Writes to the terminal, or to a new file.",
    )
    suggest.add_argument("sources", nargs="+", metavar="DATASET|FILE", help="name@version, or .csv or .parquet files")
    suggest.add_argument("--target", metavar="COLUMN", help="what a model shall predict; default: a guess")
    suggest.add_argument("--time", metavar="COLUMN", help="when the model is asked; default: a guess")
    suggest.add_argument("--key", action="append", metavar="COLUMN", help="names a row; give it again for several")
    suggest.add_argument("--out", type=Path, metavar="FILE", help="a new file; one that exists stays as it is")
    suggest.set_defaults(command=run_suggest)

    export = actions.add_parser(
        "export",
        help="the contract as a suite of Great Expectations, for other tools",
        description="Writes the rules as a Great Expectations suite over the table's own columns, to the terminal or "
        "to a new file. Rules that no expectation counts as they do are named on stderr, with the reason.",
    )
    export.add_argument("use_case")
    export.add_argument("--gx", action="store_true", required=True, help="as a suite of Great Expectations, in JSON")
    export.add_argument("--out", type=Path, metavar="FILE", help="a new file; one that exists stays as it is")
    export.set_defaults(command=run_export)

    review = actions.add_parser(
        "review",
        help="say when each input's value is known, which a draft can only guess",
        description="Asks for each input that waits for a review when its value is known, the strongest first, and "
        "writes the answers into contract.yaml. Without a terminal it lists them; answer by --column and --known.",
    )
    review.add_argument("use_case")
    review.add_argument("--column", action="append", metavar="COLUMN", help="a column to answer for; again for several")
    review.add_argument(
        "--known",
        action="append",
        metavar="WHEN",
        help="its answer: PT0S (when the model is asked), later, target (made of it), or a duration: --known=-PT1H",
    )
    review.add_argument("--accept-all", action="store_true", help="accept all that wait, unasked; the verdict tells it")
    review.add_argument("--reason", metavar="TEXT", help="why they may be accepted; the verdict quotes it")
    review.set_defaults(command=run_review)


def run_review(parsed: argparse.Namespace) -> int:
    """Ask, or write what the options say; 1 if inputs wait and nobody can be asked."""
    from trainworthy.lifecycle.errors import Problem, UseCaseError
    from trainworthy.lifecycle.wording import counted
    from trainworthy.pipeline.review import review, waiting

    columns, known = parsed.column or [], parsed.known or []
    problems = []
    if len(columns) != len(known):
        fix = "give --known WHEN behind each --column COLUMN"
        problems.append(Problem("--known", f"{len(columns)} columns and {len(known)} answers", fix))
    if parsed.accept_all != bool((parsed.reason or "").strip()):
        fix = "give both, or none: --accept-all --reason 'all columns come from the order form'"
        problems.append(Problem("--accept-all", "needs a reason, and a reason needs it", fix))
    if problems:
        raise UseCaseError(parsed.use_case, problems)
    answered = bool(columns) or parsed.accept_all
    if not answered and not sys.stdin.isatty() and (left := waiting(parsed.use_case)):
        wait = "waits" if len(left) == 1 else "wait"
        print(f"{counted(len(left), 'input')} of {parsed.use_case} {wait} for a review, the strongest first:")
        print("\n".join(f"  {strength.column}{strength.note}" for strength in left))
        column = shlex.quote(left[0].column)
        print(f"answer: trainworthy contract review {parsed.use_case} --column {column} --known WHEN")
        print("  WHEN: PT0S (known when the model is asked), later, target (made of it), or a duration: --known=-PT1H")
        return 1
    reason = parsed.reason.strip() if parsed.accept_all else None
    print(review(parsed.use_case, list(zip(columns, known, strict=True)), reason, input if not answered else None))
    return 0


def run_export(parsed: argparse.Namespace) -> int:
    """Print the suite, or write it; the rules that it lacks go to stderr."""
    import json

    from trainworthy.expectations.export import export
    from trainworthy.lifecycle.contract.read import load_contract
    from trainworthy.lifecycle.errors import Problem, UseCaseError
    from trainworthy.lifecycle.storage.state import write_atomic
    from trainworthy.lifecycle.use_case import load_use_case
    from trainworthy.resources.settings import read_settings, use_case_folder

    out: Path | None = parsed.out
    if out is not None and out.exists():
        problem = Problem("--out", "there is such a file, and it stays", "name a new file", str(out))
        raise UseCaseError(parsed.use_case, [problem])
    if out is not None and not out.absolute().parent.is_dir():
        problem = Problem("--out", "its folder does not exist", "make the folder first", str(out))
        raise UseCaseError(parsed.use_case, [problem])
    use_case = load_use_case(use_case_folder(read_settings(), parsed.use_case))
    exported = export(load_contract(use_case.contract_path))
    text = json.dumps(exported.suite, indent=2, ensure_ascii=False) + "\n"
    if out is None:
        print(text, end="")
    else:
        write_atomic(out, text.encode())
        print(f"wrote {out}: {len(exported.suite['expectations'])} expectations")
    for rule, reason in exported.left_out.items():
        print(f"left out: {rule}: {reason}", file=sys.stderr)
    return 0


def run_suggest(parsed: argparse.Namespace) -> int:
    """Print the draft, or write it."""
    from trainworthy.pipeline.suggest import DraftRequest, suggest

    request = DraftRequest(tuple(parsed.sources), parsed.target, parsed.time, tuple(parsed.key or ()), parsed.out)
    print(suggest(request).removesuffix("\n"))
    return 0


def run_test(parsed: argparse.Namespace) -> int:
    """Print what was found; 1 if a rule can never fail."""
    from trainworthy.pipeline.rule_test import tested_rules, tested_text

    tested = tested_rules(parsed.use_case, parsed.version)
    print(tested_text(tested))
    return 1 if tested.trial.never else 0


def run_pin(parsed: argparse.Namespace) -> int:
    """Write the reference."""
    from trainworthy.pipeline.pin import pin

    print(pin(parsed.use_case, parsed.version))
    return 0
