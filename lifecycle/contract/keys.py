"""The keys of another table that a foreign key refers to: a small CSV or Parquet file beside contract.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.errors import Problem, did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from trainworthy.lifecycle.contract.model import Column

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
        return Problem(place, "its table can't be read", f"mend tables.{name}", name)
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
        wanted = [pl.col(name).alias(f"{place}") for place, name in enumerate(names)]
        return scanned.select(wanted).head(MOST_KEYS + 1).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _UnfitError(f"can't be read: {told[:200]}", "write it anew, as UTF-8 text or as Parquet") from None


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
