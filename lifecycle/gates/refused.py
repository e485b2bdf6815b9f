"""What a pull request is told of a use case that cannot be loaded, or of a step that cannot begin: a row a problem."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import yaml

from trainworthy.lifecycle.errors import Problem, TrainworthyError, UseCaseError
from trainworthy.lifecycle.gates.ci import Row

# As PyYAML says it; the last one is where it gave up.
_YAML_LINE = re.compile(r"line (\d+), column \d+")
_FILE = re.compile(r"([\w/]+\.(?:py|yaml))(?::(\d+))?(?:: *(.*))?")
# What names an item of a list in contract.yaml.
_NAMES = ("name", "property")


def refused_rows(step: str, error: TrainworthyError, folder: Path) -> tuple[Row, ...]:
    """A row for each problem, with its file and its line as far as they can be found."""
    if isinstance(error, UseCaseError):
        return tuple(_row(step, problem, folder) for problem in error.problems)
    return (_row(step, Problem(type(error).__name__, error.problem, error.fix, error.value), folder),)


def _row(step: str, problem: Problem, folder: Path) -> Row:
    problem_text = str(problem).rpartition("\n    fix: ")[0]
    file, line = place_of(problem, folder)
    return Row(step, problem.where, "fail", "error", True, problem_text, problem.fix, file=file, line=line)


def place_of(problem: Problem, folder: Path) -> tuple[str, int]:
    """File and line of a problem; line 1 if none is known, and use_case.yaml if the problem names no file."""
    match = _FILE.match(problem.where)
    if match is None:
        return "use_case.yaml", 1
    file, line, keys = match.groups()
    if line:
        return file, int(line)
    if in_yaml := _YAML_LINE.findall(problem.problem):
        return file, int(in_yaml[-1])
    return file, _line_of_keys(folder / file, re.findall(r"[^.\[\]]+", keys or ""))


def _line_of_keys(path: Path, keys: list[str]) -> int:
    """The line of the innermost of these keys that the YAML has, from 1 on."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return 1
    line = 1
    for key in keys:
        entry = next((named for named in _named(node, deep=path.name == "contract.yaml") if named[0] == key), None)
        if entry is None:
            break
        _, line, node = entry
    return line


def _named(node: yaml.Node | None, deep: bool) -> Iterator[tuple[str, int, yaml.Node]]:
    """Name, line and value of what stands in a node, outer ones first; with `deep` all that stands below it, since
    the places of a contract leave out how it is built."""
    left = deque([] if node is None else [node])
    while left:
        children = list(_children(left.popleft()))
        yield from children
        left.extend(value for _, _, value in children if deep)


def _children(node: yaml.Node) -> Iterator[tuple[str, int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), key.start_mark.line + 1, value) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            called = {key.value: value.value for key, value in item.value} if isinstance(item, yaml.MappingNode) else {}
            name = next((called[key] for key in _NAMES if isinstance(called.get(key), str)), str(number))
            yield name, item.start_mark.line + 1, item
