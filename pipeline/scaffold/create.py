"""The main path of `trainworthy new`: every problem first, then everything or nothing.

The generated dataset.py itself reads the rows, so that what is inferred is what will be built. DVC builds and keeps
version v1 from a temporary project of one stage; only then files are copied into the user's project, and taken away
again if one of them can't be written.

Example rows for a use case without data: 120 days of orders, and whether each came back.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.draft import ColumnDraft
from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.declarations import refuse_declarations
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.files.versions import add_version
from trainworthy.lifecycle.spec.task import KindName
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.scaffold.folder_profile import find_files
from trainworthy.pipeline.scaffold.profile import PARAMETERS, UseCaseDraft, place_part
from trainworthy.pipeline.scaffold.project import install, lay_out
from trainworthy.pipeline.scaffold.request import Request, request_problems
from trainworthy.pipeline.scaffold.stage_text import project_stages
from trainworthy.pipeline.scaffold.table_profile import find_out
from trainworthy.pipeline.scaffold.windows import Windows
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.settings import Settings, claim_state


@dataclass(frozen=True)
class Created:
    """What was written and found out on the way; `labels` says which labels there are, `why` how the kind was told.

    `copied` is what --data names: a file or a folder.
    """

    folder: Path
    first_model: str
    rows: int
    kind: KindName
    labels: str
    why: str
    key: tuple[str, ...]
    columns: tuple[ColumnDraft, ...]
    windows: Windows
    observations: tuple[str, ...]
    copied: str = "file"


def create(request: Request, settings: Settings) -> Created:
    """Write the use case and publish its dataset. Raises TrainworthyError, having written nothing."""
    use_cases = settings.use_cases[0]
    stages = project_stages(use_cases.parent)
    problems = list(request_problems(request, settings, stages))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        request, source = _with_source(request, work)
        draft, source_problems = (find_files if source.is_dir() else find_out)(request, source, work)
        if draft is None or problems:
            raise UseCaseError(request.name, [*problems, *source_problems])
        state = claim_state(settings)
        project = work / "project"
        folder = lay_out(request, settings, draft, project)
        if (files := draft.files or draft.table_files) is None:
            place_part(source, project / request.source)
        else:
            files.place(project / request.source)
        version = DatasetStore(state.root).publish(project, request.name, "v1", dict(PARAMETERS))
        # A use case that could not be loaded would keep all others from loading too.
        refuse_declarations(load_use_case(folder), load_prices(settings.prices))
        install(request, settings, project, lambda target: add_version(target, request.name, "v1", version))
    return Created(
        folder=use_cases / request.name,
        first_model=os.path.relpath(use_cases / request.name / "first_model.yaml"),
        rows=version.rows,
        kind=draft.target.task.kind,
        labels=_labels(draft),
        why=draft.target.why,
        key=draft.key,
        columns=draft.columns,
        windows=draft.windows,
        observations=draft.observations,
        copied="folder"
        if draft.files is not None
        else "table and its files"
        if draft.table_files is not None
        else "file",
    )


def _labels(draft: UseCaseDraft) -> str:
    label = draft.target.label
    if label.type == "mask":
        return f"{len(label.classes)} classes"
    labels = with_label(draft.rows, label)[label.name]
    return f"{100 * labels.mean():.1f} % positive" if label.type == "event" else label.kind.in_words(labels)


def _with_source(request: Request, work: Path) -> tuple[Request, Path]:
    """The request and the file to read; without data the example's rows in a file."""
    if request.data is not None:
        return request, request.data
    path = work / "example.parquet"
    example_rows().to_parquet(path, index=False)
    named = dataclasses.replace(request, target=TARGET, time=TIME, keys=KEYS, positive=POSITIVE)
    return named, path


TARGET, POSITIVE, TIME, KEYS = "returned", "yes", "ordered_at", ("order_id",)
DAYS, ORDERS_A_DAY = 120, 80


def example_rows() -> pd.DataFrame:
    """A number with nulls, a whole number, two texts, a boolean; the label depends on some of them, with noise."""
    generator = np.random.default_rng(0)
    rows = DAYS * ORDERS_A_DAY
    price = generator.lognormal(3.5, 0.6, rows).round(2)
    items = generator.integers(1, 6, rows)
    channel = generator.choice(["app", "shop", "web"], rows, p=[0.4, 0.2, 0.4])
    size = generator.choice(["S", "M", "L", "XL"], rows)
    gift = generator.random(rows) < 0.15
    rating = generator.normal(4, 0.7, rows).clip(1, 5).round(1)
    logit = 0.8 * np.log(price) - 3.2 + 0.5 * (channel == "web") - 0.8 * gift - 0.7 * (rating - 4)
    minutes = np.repeat(np.arange(DAYS), ORDERS_A_DAY) * 1440 + np.tile(np.arange(ORDERS_A_DAY) * 15 + 120, DAYS)
    return pd.DataFrame(
        {
            "order_id": np.arange(1, rows + 1),
            "ordered_at": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(minutes, unit="min"),
            "price": price,
            "items": items,
            "channel": channel,
            "size": size,
            "gift": gift,
            "rating": np.where(generator.random(rows) < 0.1, np.nan, rating),
            "returned": np.where(generator.random(rows) < 1 / (1 + np.exp(-logit)), "yes", "no"),
        }
    )
