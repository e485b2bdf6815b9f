"""Completes compiled rules by what lies beside contract.yaml: the keys of other tables, and the pinned reference.

Both end in the rules' parameters, so that the contract's hash changes with them.

The keys of another table that a foreign key refers to: a small CSV or Parquet file beside contract.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.odcs import Document, custom_properties, where
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.errors import Problem, did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from trainworthy.lifecycle.contract.model import Column

SUFFIXES = (".csv", ".parquet")


def completed_rules(
    rules: Sequence[Rule], document: Document, folder: Path, columns: Sequence[Column], pinned: bool
) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The rules with keys and reference counts, and what keeps them from being complete.

    Without `pinned`, rules of kind distribution stay as they are.
    """
    from trainworthy.lifecycle.contract.reference import REFERENCE_FILE, with_reference

    by_name = {column.name: column for column in columns}
    tables, problems = _tables(custom_properties(document.values).get("tables", {}), folder)
    # A column whose declaration is wrong has no type to read a key by; it is reported where it stands.
    sound = [
        rule for rule in rules if rule.kind not in ("references", "distribution") or set(rule.columns) <= set(by_name)
    ]
    completed: list[Rule] = []
    for rule in sound:
        answer: Rule | Problem = rule
        if rule.kind == "references":
            answer = with_keys(rule, tables, by_name)
        elif rule.kind == "distribution" and pinned:
            answer = with_reference(rule, folder / REFERENCE_FILE, by_name)
        (completed if isinstance(answer, Rule) else problems).append(answer)  # pyright: ignore[reportArgumentType]
    problems += _unused(tables, rules)
    # Several rules may miss the same file.
    return tuple(completed), list({str(problem): problem for problem in problems}.values())


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


# They are held in memory and hashed with the contract.
MOST_KEYS = 1_000_000


def with_keys(rule: Rule, tables: Mapping[str, Path], columns: Mapping[str, Column]) -> Rule | Problem:
    """The rule with the sorted `keys` of its table, typed as the contract's columns; or why there are none."""
    name, key_columns = rule.parameters["table"], rule.parameters["key_columns"]
    place = f"contract.yaml: relationship {rule.id}"
    if name not in tables:
        fix = did_you_mean(name, tables) if tables else f"add the custom property tables: {{{name}: tables/{name}.csv}}"
        return Problem(place, "refers to a table that is not in the custom property `tables`", fix, name)
    if not tables[name].is_file():
        return Problem(place, "its table can't be read", f"correct tables.{name}", name)
    try:
        keys = _typed_keys(tables[name], key_columns, [columns[column].logical_type for column in rule.columns])
    except _UnfitError as unfit:
        return Problem(f"{place}: {tables[name].name}", unfit.problem, unfit.fix, unfit.value)
    bound = rule.parameters["bound"]
    return rule.model_copy(update={"parameters": {"bound": bound, "keys": sorted(keys.rows())}})


class _UnfitError(Exception):
    def __init__(self, problem: str, fix: str, value: object = None) -> None:
        self.problem, self.fix, self.value = problem, fix, value


def _typed_keys(path: Path, names: list[str], types: list[str]) -> pl.DataFrame:
    """One row a key, without nulls and duplicates. Raises _UnfitError."""
    import polars as pl

    raw = _read(path, names)
    if raw.height > MOST_KEYS:
        raise _UnfitError(f"holds more than {MOST_KEYS:,} keys", "refer to a smaller table")
    if raw.height == 0:
        raise _UnfitError("holds no key", "write the rows that may be referred to")
    empty = sum(raw.select(pl.any_horizontal(pl.all().is_null())).to_series())
    if empty:
        raise _UnfitError("holds null keys", "leave these rows out", f"{empty} rows")
    keys = pl.DataFrame([_typed(raw[:, place], kind) for place, kind in enumerate(types)])
    repeated = int(keys.is_duplicated().sum())
    if repeated:
        raise _UnfitError("holds keys twice", "keep one row for each key", f"{repeated} rows")
    return keys


def _read(path: Path, names: list[str]) -> pl.DataFrame:
    """The key columns by place; of a CSV as texts, an empty one null."""
    import polars as pl

    try:
        scanned = pl.scan_csv(path, infer_schema=False) if path.suffix == ".csv" else pl.scan_parquet(path, glob=False)
        known = scanned.collect_schema().names()
        lacking = [name for name in names if name not in known]
        if lacking:
            raise _UnfitError("has no such column", did_you_mean(lacking[0], known), lacking[0])
        keys = [pl.col(name).alias(f"{place}") for place, name in enumerate(names)]
        return scanned.select(keys).head(MOST_KEYS + 1).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _UnfitError(f"can't be read: {reason[:200]}", "write it anew, as UTF-8 text or as Parquet") from None


def _typed(values: pl.Series, kind: str) -> pl.Series:
    """The values as the contract's column holds them. Raises _UnfitError for another type, and for days and times."""
    import polars as pl

    dtype = values.dtype
    text = dtype in (pl.String, pl.Categorical, pl.Enum)
    targets: dict[str, Any] = {"string": pl.String, "integer": pl.Int64, "number": pl.Float64, "boolean": pl.Boolean}
    if kind not in targets:
        raise _UnfitError(f"a {kind} can't be a key here", "refer by texts, numbers or booleans")
    fits = {
        "string": False,
        "integer": dtype.is_integer(),
        "number": dtype.is_numeric(),
        "boolean": dtype == pl.Boolean,
    }
    if not text and not fits[kind]:
        raise _UnfitError(f"holds {dtype}, and the column that refers is a {kind}", "write keys of that type")
    if kind == "boolean" and text:
        typed = values.cast(pl.String).str.to_lowercase().replace_strict({"true": True, "false": False}, default=None)
    else:
        typed = (values.cast(pl.String) if text else values).cast(targets[kind], strict=False)
    wrong = int(typed.null_count()) + (int((~typed.is_finite()).sum()) if kind == "number" else 0)
    if wrong:
        raise _UnfitError(f"holds keys that are no {kind}", f"write values of type {kind}", f"{wrong} rows")
    return typed
