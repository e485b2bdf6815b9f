"""Completes compiled rules by what lies beside contract.yaml: the keys of other tables, and the pinned reference.

Both end in the rules' parameters, so that the contract's hash changes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.odcs import Document, custom_properties, where
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.errors import Problem, did_you_mean

if TYPE_CHECKING:
    from trainworthy.lifecycle.contract.model import Column

SUFFIXES = (".csv", ".parquet")


def completed_rules(
    rules: Sequence[Rule], document: Document, folder: Path, columns: Sequence[Column], pinned: bool
) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The rules with keys and reference counts, and what keeps them from being complete.

    Without `pinned`, rules of kind distribution stay as they are.
    """
    from trainworthy.lifecycle.contract.keys import with_keys
    from trainworthy.lifecycle.contract.reference import REFERENCE_FILE, with_reference

    by_name = {column.name: column for column in columns}
    tables, problems = _tables(custom_properties(document.values).get("tables", {}), folder)
    # A column whose declaration is wrong has no type to read a key by; it is reported where it stands.
    sound = [
        rule for rule in rules if rule.kind not in ("references", "distribution") or set(rule.columns) <= set(by_name)
    ]
    found: list[Rule] = []
    for rule in sound:
        answer: Rule | Problem = rule
        if rule.kind == "references":
            answer = with_keys(rule, tables, by_name)
        elif rule.kind == "distribution" and pinned:
            answer = with_reference(rule, folder / REFERENCE_FILE, by_name)
        (found if isinstance(answer, Rule) else problems).append(answer)  # pyright: ignore[reportArgumentType]
    problems += _unused(tables, rules)
    # Several rules may miss the same file.
    return tuple(found), list({str(problem): problem for problem in problems}.values())


def _unused(tables: Iterable[str], rules: Iterable[Rule]) -> Iterable[Problem]:
    used = {rule.parameters["table"] for rule in rules if rule.kind == "references"}
    for name in sorted(set(tables) - used):
        fix = "refer to it in `relationships`, or remove it"
        yield Problem(where("customProperties", "tables", name), "no relationship uses this table", fix)


def _tables(written: Any, folder: Path) -> tuple[dict[str, Path], list[Problem]]:
    """Files of the other tables by name. A file that lies elsewhere, or is of another form, is a problem."""
    place = where("customProperties", "tables")
    if not isinstance(written, dict) or not all(isinstance(item, str) for pair in written.items() for item in pair):
        return {}, [Problem(place, "must map names to files", "write {airlines: tables/airlines.csv}", written)]
    tables: dict[str, Path] = {}
    problems: list[Problem] = []
    for name, relative in written.items():
        path, problem, fix = folder / relative, "", ""
        if Path(relative).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
            problem, fix = (
                "lies outside of the use case's folder",
                "copy the file into the folder, for example to tables/",
            )
        elif path.suffix not in SUFFIXES:
            problem, fix = "is neither CSV nor Parquet", "name a .csv or .parquet file"
        elif not path.is_file():
            files = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.suffix in SUFFIXES]
            problem, fix = "the file is missing", did_you_mean(relative, files) if files else "add it to the folder"
        if problem:
            problems.append(Problem(f"{place}.{name}", problem, fix, relative))
        # A table that can't be read keeps its name, so that its relationships don't complain about that too.
        tables[name] = path
    return tables, problems
