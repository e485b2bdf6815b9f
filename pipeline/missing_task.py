"""What `trainworthy check --fix` writes: the kind of task, where use_case.yaml names none, by the contract's label.

Only that line is added; comments and form of the file stay.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from trainworthy.lifecycle.contract.draft import inline
from trainworthy.lifecycle.contract.model import LabelType
from trainworthy.lifecycle.spec.task import KIND_OF_LABEL
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.pipeline.check import contract_of
from trainworthy.resources.settings import read_settings, use_case_folder

LABEL_WORDS: dict[LabelType, str] = {
    "event": "is an event", "class": "is one of several classes", "labels": "is any number of several",
    "number": "is a number", "mask": "is a class for each pixel", "text": "is a text's next byte",
}  # fmt: skip


def write_missing_task(name: str) -> str:
    """What was written, or why nothing was. Raises SettingsError if there is no such use case."""
    folder = use_case_folder(read_settings(), name)
    path = folder / "use_case.yaml"
    text = _text_of(path)
    values = None if text is None else _mapping_of(text)
    if text is None or values is None:
        return "nothing repaired: use_case.yaml can't be read as a mapping of keys"
    if "task" in values:
        return "nothing to repair: use_case.yaml names its task"
    contract = contract_of(folder)
    if contract is None:
        return "nothing repaired: the kind of task follows from the contract's label, and contract.yaml has problems"
    if contract.label.type == "text":
        return "nothing repaired: write how many bytes are predicted: task: {kind: language_model, length: 256}"
    task = {"kind": KIND_OF_LABEL[contract.label.type]}
    line = f"task: {inline(task)}"
    changed = with_line(text, line)
    if _mapping_of(changed) != values | {"task": task}:
        return f"nothing repaired: add this line to use_case.yaml by hand: {line}"
    write_atomic(path, changed.encode())
    return (
        f"wrote    {path}: {line}, since the contract's label {contract.label.name} {LABEL_WORDS[contract.label.type]}"
    )


def with_line(text: str, line: str) -> str:
    """The file with the line behind that of the key `target`, at its end where there is none."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    ends = [value.end_mark.index for key, value in root.value if key.value == "target"]
    line_end = text.find("\n", ends[0]) if ends else -1
    place = len(text) if line_end < 0 else line_end + 1
    before = text[:place] if text[:place].endswith("\n") else f"{text[:place]}\n"
    return f"{before}{line}\n{text[place:]}"


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _mapping_of(text: str) -> dict[str, object] | None:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return document if isinstance(document, dict) else None
