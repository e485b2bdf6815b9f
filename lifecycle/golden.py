"""Golden requests: what an artifact is asked after a rollback, with the answers that it gave when it was written.

Rows must not ship with a model. So each column is drawn by itself from the validation rows, columns that the contract
marks as sensitive are blank, and a request that happens to be a training, validation or calibration row in all that is
not blank is left out. Equal rows and seed give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lifecycle.promotion.controls import largest_difference
from lifecycle.records import Frozen
from lifecycle.tasks.kind import Kind

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Score = Callable[[pd.DataFrame], np.ndarray]

FILE, REQUESTS = "golden.parquet", 50
# Some combinations that are drawn are rows and left out.
_DRAWN = 4 * REQUESTS
# With a colon, so that it is no feature's name.
_ANSWER = "golden:answer"
# Of an answer that is a picture so many numbers are compared, evenly spread.
_MOST_NUMBERS = 256


class Golden(NamedTuple):
    """Requests, a row each, and the answers on record, shape `(N, ...)`."""

    requests: pd.DataFrame
    answers: np.ndarray


class GoldenAnswers(Frozen):
    """How many requests were answered, and the largest difference from the answers on record, at most 2.

    The difference is a share of Kind.answer_scale: as it is for probabilities, of their spread for numbers.
    """

    requests: int
    difference: float


def draw_requests(
    rows: pd.DataFrame, sensitive: Iterable[str], seed: int, known: Iterable[pd.DataFrame] = ()
) -> pd.DataFrame:
    """At most REQUESTS requests with the columns of `rows`; none is one of `rows` or of the frames in `known`.

    Blank columns do not count in that: a row without its sensitive values is a row still. A single blank request where
    the columns are so few that every combination that was drawn is a row.
    """
    import numpy as np
    import pandas as pd

    generator, hidden = np.random.default_rng(seed), set(sensitive)
    columns = {}
    for name in rows:
        drawn = rows[name].iloc[generator.integers(len(rows), size=_DRAWN)].reset_index(drop=True)
        columns[name] = _blank(drawn) if name in hidden else drawn
    requests = pd.DataFrame(columns)
    for frame in (rows, *known):
        shown = requests[[name for name in requests if name not in hidden]]
        requests = requests[~_hashes(shown).isin(_hashes(_near(frame, shown)))]
    if requests.empty:
        return pd.DataFrame({name: _blank(column.iloc[:1]) for name, column in columns.items()})
    return requests.head(REQUESTS).reset_index(drop=True)


def _blank(column: pd.Series) -> pd.Series:
    """Zero, false, the epoch or empty text: a value of the column's kind, as not every model takes a null."""
    import pandas as pd

    if column.dtype.kind in "iufbmM":
        return pd.Series(0, index=column.index, dtype=column.dtype)
    return pd.Series("", index=column.index, dtype="str")


def _near(frame: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """The rows whose every value is some request's: few, so that no copy is made of a frame that may be large."""
    import numpy as np

    near = np.ones(len(frame), dtype=bool)
    for name in requests:
        near &= frame[name].isin(requests[name]).to_numpy()
    return frame.loc[near, list(requests)]


def _hashes(frame: pd.DataFrame) -> pd.Series:
    import pandas as pd

    return pd.util.hash_pandas_object(frame, index=False)


def write_golden(folder: Path, requests: pd.DataFrame, score: Score, kind: Kind) -> None:
    """Write the requests with the artifact's answers to them."""
    requests.assign(**_as_columns(score(requests), kind)).to_parquet(folder / FILE, index=False)


def read_golden(folder: Path, kind: Kind) -> Golden | None:
    """Requests and answers on record of a verified artifact of this kind; None if it was written without."""
    import pandas as pd

    path = folder / FILE
    if not path.is_file():
        return None
    table = pd.read_parquet(path)
    names = _columns(kind)
    answers = table[names].to_numpy(dtype="float64").reshape(len(table), *_shape(kind))
    return Golden(table.drop(columns=names), answers)


def _shape(kind: Kind) -> tuple[int, ...]:
    """Of what is compared of an answer."""
    return kind.answer_shape if len(kind.answer_shape) < 2 else (min(math.prod(kind.answer_shape), _MOST_NUMBERS),)


def _columns(kind: Kind) -> list[str]:
    """Columns of the answers: named as they are where they are few, numbered else."""
    names = kind.answer_names if len(kind.answer_shape) < 2 else [str(at) for at in range(_shape(kind)[0])]
    return [f"{_ANSWER}:{name}" if name else _ANSWER for name in names]


def _compared(answers: np.ndarray, kind: Kind) -> np.ndarray:
    """Answers `(N, *answer_shape)`, or of pictures the numbers that are compared, `(N, K)`."""
    import numpy as np

    if len(kind.answer_shape) < 2:
        return answers
    numbers = answers.reshape(len(answers), -1)
    return numbers[:, np.linspace(0, numbers.shape[1] - 1, _shape(kind)[0]).astype(int)]


def _as_columns(answers: np.ndarray, kind: Kind) -> dict[str, np.ndarray]:
    return dict(zip(_columns(kind), _compared(answers, kind).reshape(len(answers), -1).T, strict=True))


def answer_golden(golden: Golden, score: Score, kind: Kind) -> GoldenAnswers:
    """Answer the requests again."""
    answers = _compared(score(golden.requests), kind)
    difference = largest_difference(golden.answers, answers, kind.answer_scale(golden.answers))
    # JSON has no infinity; any difference above 1 fails all the same.
    return GoldenAnswers(requests=len(golden.requests), difference=min(difference, 2.0))
