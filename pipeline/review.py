"""What `trainworthy contract review` does: asks when each value is known, the strongest input first, and writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.review import LATER, REVIEWABLE, TARGET, answer_values, fix_of_role, with_answers
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.errors import Problem, UseCaseError
from trainworthy.lifecycle.files.few_rows import few_rows
from trainworthy.lifecycle.leakage.unreviewed import NAME, alone_aucs
from trainworthy.lifecycle.protocol.records import StageReport, Step
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.lifecycle.wording import counted
from trainworthy.pipeline.rule_test import dataset_files
from trainworthy.resources.settings import read_settings, use_case_folder
from trainworthy.resources.shared_state import records_of

STOP = "stop"
# What may be typed for the answers of --known.
SHORT = {"": "PT0S", "y": "PT0S", "yes": "PT0S", "l": LATER, "t": TARGET, "q": STOP, "quit": STOP}
ASK = """\
When is its value known, for a row that the model is asked about?
  Enter   when the model is asked, or before      -PT1H   an hour before it, as an ISO 8601 duration
  later   only afterwards: no input               target  it is made of what happened: no input
  stop    leave the rest for another time"""
RANK_ROWS = 20_000
# Inputs that are named where all are accepted at once.
STRONGEST = 3


@dataclass(frozen=True)
class Strength:
    """What is known of a column's weight in the model, in words."""

    column: str
    note: str


Asks = Callable[[str], str]


def review(name: str, answers: Sequence[tuple[str, str]], accept_reason: str | None, ask: Asks | None) -> str:
    """Write the answers, or ask for them; returns what was written and what is left.

    `answers` are (column, known); with `accept_reason` all columns that wait are accepted unasked; `ask` reads a
    person's answer to a question, None where nobody can be asked. Raises UseCaseError, having written nothing.
    """
    use_case = load_use_case(use_case_folder(read_settings(), name))
    contract = load_contract(use_case.contract_path)
    given = list(answers)
    if not answers and accept_reason is None and ask is not None:
        given = list(_prompted_answers(use_case, contract, ask))
    changes, unasked = _changes(use_case, contract, given), list[str]()
    if accept_reason is not None:
        rest = [column for column in contract.unreviewed_features if column not in changes]
        unasked = _unasked(use_case, contract, rest)
        changes |= {column: {"reviewed": accept_reason} for column in rest}
    text = use_case.contract_path.read_text(encoding="utf-8")
    changed, problems = with_answers(text, changes)
    if problems:
        raise UseCaseError(name, problems)
    if changed != text:
        write_atomic(use_case.contract_path, changed.encode())
    return "\n".join([*_result_lines(use_case, load_contract(use_case.contract_path), changes), *unasked])


def _unasked(use_case: UseCase, contract: Contract, accepted: Sequence[str]) -> list[str]:
    """A line for what is accepted unasked: the inputs that tell most, of which one may be known only afterwards."""
    strong = [strength for strength in strongest_first(use_case, contract) if strength.column in accepted][:STRONGEST]
    if not any(strength.note for strength in strong):
        return []
    told = ", ".join(f"{strength.column}{strength.note}" for strength in strong)
    return [f"accepted unasked, the strongest first: {told}; is each known when the model is asked?"]


def waiting(name: str) -> tuple[Strength, ...]:
    """The columns that wait for a review, the strongest first."""
    use_case = load_use_case(use_case_folder(read_settings(), name))
    return strongest_first(use_case, load_contract(use_case.contract_path))


def _changes(use_case: UseCase, contract: Contract, answers: Sequence[tuple[str, str]]) -> dict[str, Mapping[str, Any]]:
    """The customProperties that the answers change. Raises UseCaseError with every answer that is none."""
    columns = {column.name: column for column in contract.columns}
    problems, changes = [], {}
    for name, known in answers:
        try:
            changes[name] = answer_values(known, contract.timeline)
        except ValueError:
            fix = f"write {LATER}, {TARGET}, or an ISO 8601 duration of days or less, such as PT0S, -PT1H or -P30D"
            problems.append(Problem(f"--known of {name}", "is no answer", fix, known))
        # A part of a key may name a thing that comes again, such as a user.
        is_part = contract.primary_key != (name,) and name in contract.primary_key
        if name in columns and columns[name].role not in REVIEWABLE and not (columns[name].role == "key" and is_part):
            fix = fix_of_role(use_case.name, columns[name])
            problems.append(Problem(f"--column {name}", f"has the role {columns[name].role} and is no input", fix))
        if (
            name == use_case.spec.split.group_column
            and name in columns
            and changes.get(name, {}).get("role") == "feature"
        ):
            problem = "is what whole groups are split by: the model has met no value of it that the benchmark holds"
            fix = "split by another column or kind in use_case.yaml first, if the model knows its values in service"
            problems.append(Problem(f"--column {name}", problem, fix))
    if problems:
        raise UseCaseError(use_case.name, problems)
    return changes


def _prompted_answers(use_case: UseCase, contract: Contract, ask: Asks) -> Iterator[tuple[str, str]]:
    """Each column with a person's answer; an answer that is none is asked for again."""
    order = strongest_first(use_case, contract)
    for place, strength in enumerate(order):
        question = (
            f"\n{place + 1} of {len(order)}: {_described(contract.column(strength.column))}{strength.note}\n{ASK}\n> "
        )
        while True:
            try:
                typed = ask(question).strip()
            except EOFError:
                return
            known = SHORT.get(typed.lower(), typed)
            if known == STOP:
                return
            try:
                answer_values(known, contract.timeline)
            except ValueError:
                question = f"{typed!r} is no answer: Enter, later, target, stop, or a duration such as -PT1H\n> "
                continue
            yield strength.column, known
            break


def _described(column: Column) -> str:
    unit = f" in {column.unit}" if column.unit else ""
    return f"{column.name} ({column.file or column.logical_type}{unit})"


def strongest_first(use_case: UseCase, contract: Contract) -> tuple[Strength, ...]:
    """The columns that wait, by what they do for the newest trained model, else by what each tells alone."""
    names = contract.unreviewed_features
    lost = _lost(records_of(read_settings()), use_case.name)
    if lost:
        order = sorted(names, key=lambda name: -lost.get(name, 0.0))
        return tuple(
            Strength(n, f": AUC falls by {max(0.0, lost[n]):.3f} if it is shuffled" if n in lost else "") for n in order
        )
    alone = _alone(use_case, contract)
    order = sorted(names, key=lambda name: -alone.get(name, 0.5))
    return tuple(Strength(n, f": AUC {alone[n]:.3f} alone" if n in alone else "") for n in order)


def _lost(store: StateRecords, name: str) -> dict[str, float]:
    """The AUC that the newest trained network loses when a column is shuffled; {} where none was measured."""
    steps: tuple[Step, ...] = ("full", "pilot")
    for step in steps:
        record = store.newest(name, step)
        if isinstance(record, StageReport):
            details = [detail for check in record.checks if check.name == NAME for detail in check.details]
            lost = {detail["column"]: detail["lost"] for detail in details if detail["lost"] is not None}
            if lost:
                return lost
    return {}


def _alone(use_case: UseCase, contract: Contract) -> dict[str, float]:
    """The AUC of each waiting column alone, on the declared version's rows; {} if these are not on this machine.

    Columns of files are left out: a path tells nothing.
    """
    names = tuple(name for name in contract.unreviewed_features if contract.column(name).file is None)
    files = dataset_files(use_case, fetched=False) if names else None
    if files is None:
        return {}
    rows, label = with_label(few_rows(files, RANK_ROWS), contract.label, files), contract.label.name
    labels = contract.label.kind.checked_labels(rows[label].to_numpy())
    event = contract.label.kind.events(labels)[0]
    rows = with_columns(rows, {label: event.of_labels(labels).astype("int64")})
    first, second = rows.iloc[::2], rows.iloc[1::2]
    if first[label].nunique() < 2 or second[label].nunique() < 2:
        return {}
    return alone_aucs(first, second, names, label)


def _result_lines(use_case: UseCase, contract: Contract, changes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    left, path = contract.unreviewed_features, use_case.contract_path
    if changes:
        yield f"wrote    {path}: {len(changes)} {'column' if len(changes) == 1 else 'columns'}"
    out = [name for name, values in changes.items() if values.get("role") == "other"]
    code = use_case.folder / "model.py"
    named = [name for name in out if code.is_file() and _names(code.read_text(encoding="utf-8"), name)]
    new = [name for name, values in changes.items() if values.get("role") == "feature"]
    unread = [name for name in new if code.is_file() and not _names(code.read_text(encoding="utf-8"), name)]
    if unread:
        yield f"model.py does not read {', '.join(unread)} yet: in a draft, add what names things to CATEGORIES"
    if out:
        yield f"no input any more: {', '.join(out)}"
    if named:
        yield f"model.py still names {', '.join(named)}: take that out, then run trainworthy check {use_case.name}"
    if left:
        inputs = counted(len(contract.feature_columns), "input")
        yield f"{len(left)} of {inputs} {'waits' if len(left) == 1 else 'wait'} for a review: {', '.join(left)}"
        yield f"go on: trainworthy contract review {use_case.name}"
    else:
        yield f"none of the {counted(len(contract.feature_columns), 'input')} of {use_case.name} waits for a review"
    if accepted := contract.accepted_features:
        yield f"{len(accepted)} of them were accepted without one: the verdict will name the reason"


def _names(code: str, column: str) -> bool:
    return f'"{column}"' in code or f"'{column}'" in code
