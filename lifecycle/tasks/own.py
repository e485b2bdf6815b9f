"""Metrics and baselines of a use case's own.

A metric is a function of metrics.py, `name(labels, answers, rows)`: labels `(N,)`, a class as its place, several labels
as 0 and 1 `(N, labels)`, masks `(N, height, width)`; answers as predict gives them after calibration, of masks
`(N, height, width, classes)` and some rows at a time; rows with the columns of the benchmark. It gives a figure of each
row, `(N,)`, and the metric is their mean; or `(N, 2)`, and the metric is the sum of the first column over that of the
second. Which way is better stands in use_case.yaml.

A baseline is a function of model.py, `baseline_name(training, labels)`: it learns from training rows with the feature
columns and their labels `(N,)`, and gives a function of rows that answers as predict does.

Both are run by the worker alone. What a metric's rows gave lies in the table of predictions, so that intervals, gains
and later questions need no code of the use case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError, Problem, UseCaseError
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of, truth_of
from trainworthy.lifecycle.tasks.metric import TaskMetric, group_sums, ratio

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.protocol.jobs import Rows
    from trainworthy.lifecycle.tasks.kind import Predictor

FILE, BASELINE = "metrics.py", "baseline_"
# Columns of the table of predictions.
RESERVED = ("row", "group", "label", "weight", "candidate", "champion", "slice", "metric")
# Rows that metrics are tried on where answers have places: with all of them, as large as masks, 2,000 rows of 256 x 256
# and two classes would be 2 GB of float64.
TRIED_ROWS = 64
_FIX = "give one finite number for each row, shape (N,), or two, shape (N, 2): the metric is the ratio of their sums"


def own_figures(
    module: ModuleType, name: str, labels: np.ndarray, answers: np.ndarray, rows: pd.DataFrame, *, sensitive: bool
) -> np.ndarray:
    """What metrics.py's function gives for rows, (N, 1) or (N, 2) float64. Raises UseCaseError if it is none.

    With `sensitive` columns an error's own message is kept back.
    """
    import numpy as np

    from trainworthy.lifecycle.task import error_line

    folder = Path(str(module.__file__)).parent
    try:
        figures = np.asarray(getattr(module, name)(labels, answers, rows), dtype=np.float64)
    except Exception as error:
        problem = Problem(f"{FILE}: {name}", error_line(error, folder, sensitive=sensitive), "look at that line")
        raise UseCaseError(folder.name, [problem]) from error
    columns = figures.reshape(-1, 1) if figures.ndim == 1 else figures
    if columns.ndim != 2 or len(columns) != len(labels) or columns.shape[1] not in (1, 2):
        problem = Problem(f"{FILE}: {name}", f"{len(labels)} rows became {figures.shape}", _FIX)
        raise UseCaseError(folder.name, [problem])
    if not np.isfinite(columns).all():
        wrong = int((~np.isfinite(columns)).any(axis=1).sum())
        raise UseCaseError(folder.name, [Problem(f"{FILE}: {name}", f"{wrong} rows have no finite figure", _FIX)])
    return columns


def figure_columns(name: str, model: str, count: int) -> list[str]:
    """Columns of the table of predictions that hold an own metric's figures of a model's rows."""
    return [f"metric:{name}:{model}:{place}" for place in range(count)]


def stored_figures(name: str, model: str, table: pd.DataFrame) -> np.ndarray:
    """Those figures, (N, 1) or (N, 2); (N, 0) where the table holds none."""
    columns = [column for column in figure_columns(name, model, 2) if column in table.columns]
    return table[columns].to_numpy(dtype="float64")


def own_metric(name: str, better: str, count: int) -> TaskMetric:
    """The metric of so many figures a row; its `answers` are what stored_figures gives."""
    higher = better == "more"
    if count == 1:
        return TaskMetric(name, higher, rows=lambda _, figures: figures[:, 0])
    return TaskMetric(name, higher, sums=_sums, of_sums=lambda sums: ratio(sums[..., 0], sums[..., 1]))


def _sums(labels: np.ndarray, figures: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    return group_sums(list(figures.T), codes, weights)


def own_baseline(
    module: Any, name: str, training: pd.DataFrame, columns: list[str], label: str, kind: Kind, *, sensitive: bool
) -> Predictor:
    """A baseline of model.py, fitted; its answers are held against the kind. Raises UseCaseError if they are none.

    With `sensitive` columns an error's own message is kept back.
    """
    labels = kind.checked_labels(training[label])

    def tried(work: Callable[[], Any]) -> Any:
        from trainworthy.lifecycle.task import error_line

        folder = Path(str(module.__file__)).parent
        try:
            return work()
        except EvaluationError as error:
            problem = Problem(f"model.py: {BASELINE}{name}", error.problem, error.fix, error.value)
        except Exception as error:
            problem = Problem(
                f"model.py: {BASELINE}{name}", error_line(error, folder, sensitive=sensitive), "look at that line"
            )
        raise UseCaseError(folder.name, [problem])

    predict = tried(lambda: getattr(module, f"{BASELINE}{name}")(training[columns].copy(), labels))

    def answers(rows: pd.DataFrame) -> np.ndarray:
        def checked() -> np.ndarray:
            predictions = kind.of_predict(predict(rows[columns].copy()))
            return kind.checked(kind.sample_labels(len(rows)), predictions)[1]

        return tried(checked)

    return answers


def try_own(
    folder: Path,
    metrics: Iterable[str],
    baselines: Iterable[str],
    rows: pd.DataFrame,
    columns: Rows,
    visible: Iterable[str],
) -> None:
    """Call each once on some rows, before anything is trained. Raises UseCaseError for the first that gives nothing.

    `visible` are the columns of `rows` that metrics see. Where answers have places, metrics are given TRIED_ROWS rows.
    """
    from trainworthy.lifecycle.task import load_module, load_task
    from trainworthy.lifecycle.tasks.baselines import BASELINES

    kind, sensitive, features = kind_of_rows(columns), bool(columns.sensitive), list(columns.features)
    labels = labels_of(columns, rows)
    own = [name for name in baselines if name not in BASELINES]
    task = load_task(folder) if own else None
    for name in own:
        own_baseline(task, name, rows, features, columns.label, kind, sensitive=sensitive)(rows)
    prior = kind.fit_baseline("prior", rows, features, labels, 0)
    if len(kind.answer_shape) >= 2:
        rows = rows.iloc[:TRIED_ROWS]
    truth = truth_of(columns, rows)
    answers = kind.aligned(truth, prior(rows))
    shown = rows[[name for name in visible if name in rows and name not in columns.sensitive]]
    for name in metrics:
        own_figures(load_module(folder, "metrics"), name, truth, answers, shown.copy(), sensitive=sensitive)


def own_problems(
    folder: Path, baselines: tuple[str, ...], metrics: Mapping[str, Any], known: Iterable[str]
) -> list[Problem]:
    """Own baselines and metrics that are declared and not defined, as far as the files' text tells, or misnamed.

    `known` are the kind's metrics.
    """
    from trainworthy.lifecycle.tasks.baselines import BASELINES

    own = [name for name in baselines if name not in BASELINES]
    problems = [
        Problem(f"use_case.yaml: benchmark.baselines: {name}", "the name stands for something else", "use another name")
        for name in own
        if name in RESERVED
    ] + [
        Problem(f"use_case.yaml: benchmark.metrics: {name}", "a metric of the kind has this name", "use another name")
        for name in metrics
        if name in known
    ]
    problems += [
        Problem(
            f"use_case.yaml: benchmark.baselines: {name}", "no baseline of that name",
            f"known: {', '.join(BASELINES)}; for one of your own define {BASELINE}{name}(training, labels) in model.py",
        )
        for name in own
        if name not in RESERVED and f"{BASELINE}{name}" not in _defined(folder / "model.py")
    ]  # fmt: skip
    return problems + [
        Problem(
            f"use_case.yaml: benchmark.metrics: {name}", f"{FILE} defines no function of that name",
            f"define {name}(labels, answers, rows) in {FILE}; docs/how-to/tasks.md says what it gives",
        )
        for name in metrics
        if name not in _defined(folder / FILE)
    ]  # fmt: skip


def _defined(path: Path) -> set[str]:
    """Names of the functions that a file defines or imports; empty where it can't be read, which others tell."""
    import ast

    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, UnicodeDecodeError):
        return set()
    imported = {
        alias.asname or alias.name
        for statement in body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    return {statement.name for statement in body if isinstance(statement, ast.FunctionDef)} | imported
