"""`trainworthy explain` knows every code that the sources give a finding, an error or an end, and no others."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from trainworthy.lifecycle import failure
from trainworthy.lifecycle.errors import FROM_WORKER
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.codes import CODES, DECISIONS, ENDS
from trainworthy.lifecycle.gates.findings import verdict_codes
from trainworthy.lifecycle.protocol.records import VerdictBody
from trainworthy.lifecycle.protocol.training_figures import Cause
from trainworthy.pipeline import cli
from trainworthy.pipeline.commands import explain

ROOT = Path(__file__).parents[2]
PACKAGES = ("lifecycle", "expectations", "resources", "assets", "pipeline")
TREES = {path: ast.parse(path.read_text()) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
# What has an argument named `code` that is none of these: a hash, a value of a slice.
NO_CODES = frozenset({"suite_of"})


def constants(tree: ast.Module) -> dict[str, str]:
    """Texts that a module gives names, alone or several at once."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            values = getattr(node.value, "elts", [node.value])
            targets = getattr(node.targets[0], "elts", node.targets)
            pairs = zip(targets, values, strict=False)
            found |= {getattr(target, "id", ""): value.value for target, value in pairs
                      if isinstance(value, ast.Constant) and isinstance(value.value, str)}  # fmt: skip
    return found


CONSTANTS = {path: constants(tree) for path, tree in TREES.items()}


def module(name: str | None) -> Path:
    return ROOT / f"{(name or '').removeprefix('trainworthy.').replace('.', '/')}.py"


def names_of(path: Path) -> dict[str, str]:
    """The module's own constants, and those that it imports."""
    imported = {
        alias.name: CONSTANTS[module(node.module)][alias.name]
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.ImportFrom) and module(node.module) in CONSTANTS
        for alias in node.names
        if alias.name in CONSTANTS[module(node.module)]
    }
    return imported | CONSTANTS[path]


def texts(value: ast.expr, names: dict[str, str]) -> Iterator[str]:
    """What an expression may be of texts, each branch of it; what is made at run time is none."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
        yield value.value
    if isinstance(value, ast.Name) and value.id in names:
        yield names[value.id]
    if isinstance(value, ast.IfExp):
        yield from texts(value.body, names)
        yield from texts(value.orelse, names)


def given() -> Iterator[tuple[str, str]]:
    """Each code with who is given it: by keyword, or by place to a function of the module that has one named so."""
    for path, tree in TREES.items():
        names = names_of(path)
        places = {node.name: [arg.arg for arg in node.args.args].index("code") for node in ast.walk(tree)
                  if isinstance(node, ast.FunctionDef) and "code" in [arg.arg for arg in node.args.args]}  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                values = [value for key, value in zip(node.keys, node.values, strict=True)
                          if isinstance(key, ast.Constant) and key.value == "code"]  # fmt: skip
                yield from (("", text) for value in values for text in texts(value, names))
            called = getattr(node, "func", None)
            name = getattr(called, "id", getattr(called, "attr", ""))
            if not isinstance(node, ast.Call) or name in NO_CODES:
                continue
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if name in places and len(node.args) > places[name]:
                values.append(node.args[places[name]])
            yield from ((name, text) for value in values for text in texts(value, names))


def test_explain_knows_every_code_that_a_finding_an_error_or_a_record_is_given(capsys):
    codes = {f"verdict_log.{code}" if who == "_broken" else code for who, code in given()}
    assert {"rate_too_large", "dataset.unknown_version", "verdict_log.torn", "predicate.unreadable"} <= codes
    assert len(codes) > 90
    unknown = sorted(code for code in codes if cli.main(["explain", code]))
    capsys.readouterr()
    assert unknown == []
    # And nothing is explained that there is not; what exchanges say why not comes by an error of their own.
    assert {code.id for code in CODES} - codes == {"nothing_to_exchange", "not_exchangeable"}


def test_codes_of_errors_are_told_of_the_class_that_is_raised_with_them():
    errors = classes_of_errors()
    raised = {(who, code) for who, code in given() if who in errors}
    told = {(code.of, code.id) for code in CODES if code.is_error}
    assert raised <= told
    assert {of for of, _ in told} <= errors
    assert {code.of for code in CODES if not code.is_error} <= {check.id for check in CATALOGUE} | {
        "preflight",
        "diagnosis",
    }


def test_explain_knows_every_end_of_a_trainings_process_by_cause_exit_code_and_the_errors_code(capsys):
    exits = {name: code for name, code in vars(failure).items() if name.startswith("EXIT_")}
    assert {end.exit for end in ENDS} - {None} == set(exits.values())
    assert {end.id for end in ENDS} == {*get_args(Cause), "rank_lost"}
    # A cause has the exit code by which failure.py knows it.
    of_code = dict(failure._CAUSES)
    assert {end.exit: end.id for end in ENDS if end.exit in of_code} == of_code
    ids = [
        *map(str, exits.values()),
        *get_args(Cause),
        *(f"{FROM_WORKER}{cause}.ValueError" for cause in get_args(Cause)),
    ]
    assert [name for name in ids if cli.main(["explain", name])] == []
    capsys.readouterr()


def test_explain_knows_what_a_verdict_decides(capsys):
    decided = get_args(VerdictBody.model_fields["decision"].annotation)
    assert tuple(decision.id for decision in DECISIONS) == decided
    assert cli.main(["explain", "shadow"]) == 0
    assert "and nobody is given its answers" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("full/references", "references"),
        ("inputs reviewed", "inputs_reviewed"),
        ("pilot/loss rise", "loss_rise"),
        ("PROMOTE", "promote"),
    ],
)
def test_explain_takes_names_as_reports_write_them(capsys, asked, known):
    assert cli.main(["explain", asked]) == 0
    told = capsys.readouterr().out
    assert cli.main(["explain", known]) == 0
    assert told == capsys.readouterr().out


def classes_of_errors() -> set[str]:
    """As the sources define them: TrainworthyError's, and those of these."""
    defined = {node.name: [getattr(base, "id", "") for base in node.bases] for tree in TREES.values()
               for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}  # fmt: skip
    found: set[str] = {"TrainworthyError"}
    while more := {name for name, bases in defined.items() if found & set(bases)} - found:
        found |= more
    return found - {"TrainworthyError"}


def test_explain_knows_every_class_of_errors_with_its_codes(capsys):
    assert "DagsterPrivateError" in classes_of_errors()
    assert [name for name in sorted(classes_of_errors()) if cli.main(["explain", name])] == []
    told = capsys.readouterr().out
    assert "upstream.stale" in told
    # What it means, and not how it is made.
    assert not any(word in told for word in (".py", "`"))


@pytest.mark.parametrize(
    ("code", "cause"),
    [("-9", "killed"), ("137", "killed"), ("139", "killed"), ("-15", "preempted"), ("143", "preempted")],
)  # fmt: skip
def test_explain_knows_the_exit_code_of_a_signal(capsys, code, cause):
    assert cli.main(["explain", code]) == 0
    assert capsys.readouterr().out.startswith(f"{cause}: how a training's process ended")


@pytest.mark.parametrize("code", ["-900", "128", "1000"])
def test_explain_of_a_number_that_no_process_ends_by_knows_nothing(capsys, code):
    assert cli.main(["explain", code]) == 1
    assert "nothing has this id" in capsys.readouterr().err


def test_explain_lists_all_that_it_explains(capsys):
    assert cli.main(["explain"]) == 0
    lines, _, others = capsys.readouterr().out.partition("other names: ")
    listed = {line.split()[0] for line in lines.splitlines()}
    assert {*classes_of_errors(), "76", "worker.hang", "hang", "rate_too_large"} <= listed
    assert {"DatasetError", "65"} & set(others.split()) == set()
    names = {*explain._known(), *verdict_codes()}
    assert names <= listed | {name.strip() for name in " ".join(others.split()).split(",")}
    # And each is explained.
    assert [name for name in sorted(names) if cli.main(["explain", name])] == []


@pytest.mark.parametrize(
    ("name", "near"),
    [("rate_to_large", "rate_too_large"), ("record.changd", "record.changed"), ("DatasetErorr", "DatasetError")],
)
def test_explain_of_a_slip_in_a_code_offers_the_near_one(capsys, name, near):
    assert cli.main(["explain", name]) == 1
    assert f"did you mean {near!r}?" in capsys.readouterr().err
