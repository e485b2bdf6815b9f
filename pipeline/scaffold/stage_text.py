"""Puts a stage into the text of dvc.yaml, so that its comments and its form stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.unique_keys import yaml_mistake

HEADING = "# One stage a dataset, of the dataset's name, writing data/<name>; see docs/how-to/use-case.md.\nstages:\n"


def project_stages(project: Path) -> dict[str, Any]:
    """The stages of a project's dvc.yaml, {} without one. Raises DatasetError if it can't be read."""
    path = project / "dvc.yaml"
    values = _read(path.read_text(encoding="utf-8")) if path.is_file() else None
    return (values or {}).get("stages") or {}


def _read(text: str | None) -> dict[str, Any] | None:
    """The file's mapping; None if there is nothing in it."""
    try:
        values = yaml.safe_load(text) if text else None
    except yaml.YAMLError as error:
        mistake = yaml_mistake(error, text or "")
        raise DatasetError(mistake.told("dvc.yaml"), fix=mistake.fix) from error
    stages = values.get("stages") if isinstance(values, dict) else None
    if not isinstance(values, dict | None) or not isinstance(stages, dict | None):
        raise DatasetError("dvc.yaml does not map names to stages", fix="write `stages:` and a block for each stage")
    return values


def with_stage(text: str | None, name: str, stage: str) -> str:
    """The file with the stage behind the others. `stage` is indented by two spaces; `text` is None without a file.

    Raises DatasetError if the file can't be read, or if the result were not the old stages and this one.
    """
    parsed_stage = yaml.safe_load(f"stages:\n{stage}")["stages"][name]
    old = _read(text)
    if old is None:
        return f"{text or ''}{HEADING}{stage}"
    assert text is not None
    new = _inserted(text, stage)
    if not _reads_as(new, {**old, "stages": {**(old.get("stages") or {}), name: parsed_stage}}):
        raise DatasetError(
            "the stage can't be put into dvc.yaml as it is written",
            fix=f"write `stages:` as the only block of the file that holds stages, indented by two spaces:\n{stage}",
        )
    return new


def _inserted(text: str, stage: str) -> str:
    """The text with the stage at the end of the block `stages`; a new block if there is none."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    places = [place for place, (key, _) in enumerate(pairs) if key.value == "stages"]
    if not places:
        return "".join(lines) + f"stages:\n{stage}"
    later = pairs[places[0] + 1 :]
    end = later[0][0].start_mark.line if later else len(lines)
    # Comments and empty lines before the next block belong to it.
    while end and (not lines[end - 1].strip() or (later and lines[end - 1].startswith("#"))):
        end -= 1
    return "".join([*lines[:end], stage, *lines[end:]])


def _reads_as(text: str, expected: object) -> bool:
    try:
        return yaml.safe_load(text) == expected
    except yaml.YAMLError:
        return False
