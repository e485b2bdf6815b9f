"""Reads YAML safely, refuses a key that is given twice, and says mistakes by line and fix."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

import yaml

# Of YAML 1.2, as editors read it: in PyYAML's 1.1 an exponent needs a point and a sign, and 1e-3 would be a text.
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
_TAB = re.compile(r"[ ]*\t")


class YamlMistake(NamedTuple):
    """What keeps a text from being YAML: its line from 1 on (0 if none is known), what is wrong, and what to do."""

    line: int
    problem: str
    fix: str

    def where(self, file: str) -> str:
        """The place in that file, such as use_case.yaml:27."""
        return f"{file}:{self.line}" if self.line else file

    def told(self, file: str) -> str:
        """Place and problem in one sentence."""
        return f"{self.where(file)} is not valid YAML: {self.problem}"


@functools.cache
def unique_keys_loader(*, exponents: bool = False) -> Any:
    """A safe loader that refuses a repeated key: YAML's default keeps the last one in silence.

    `exponents`: 1e-3 is a number, so that a text is one by its quotes alone. Not for files that PyYAML writes, which
    leaves a hash such as 12e34567 without quotes.
    """
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            first: dict[Any, Any] = {}
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                if (earlier := first.setdefault(str(key.value), key)) is not key:
                    problem = f"the key {key.value!r} is given twice"
                    raise yaml.constructor.ConstructorError("first", earlier.start_mark, problem, key.start_mark)
            return super().construct_mapping(node, deep)

        def construct_yaml_timestamp(self, node: Any) -> Any:
            try:
                return super().construct_yaml_timestamp(node)
            except ValueError as error:
                problem = f"{node.value} is no date or time: {error}"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_yaml_timestamp)
    if exponents:
        Loader.add_implicit_resolver(
            "tag:yaml.org,2002:float", re.compile(f"^{_EXPONENT.pattern}$"), [*"-+.0123456789"]
        )
    return Loader


def yaml_mistake(error: Exception, text: str = "") -> YamlMistake:
    """An error of the loader, or of reading the file, in words; `text` is what was read, if it is known."""
    if isinstance(error, UnicodeDecodeError):
        return YamlMistake(0, f"it is not UTF-8 ({error})", "save the file as UTF-8")
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        # PyYAML names a text by what it is to Python.
        return YamlMistake(0, " ".join(str(error).replace('in "<unicode string>", ', "at ").split()), "correct it")
    line, lines = mark.line + 1, text.splitlines()
    written = lines[mark.line] if mark.line < len(lines) else ""
    context, begun = getattr(error, "context", None), getattr(error, "context_mark", None)
    since = f" ({context} in line {begun.line + 1})" if context and begun and begun.line != mark.line else ""
    fix = _fix(problem, written, written[mark.column : mark.column + 1])
    return YamlMistake(line, f"{problem}{since}", fix)


def _fix(problem: str, line: str, sign: str) -> str:
    if _TAB.match(line) or sign == "\t":
        return "replace the tab by spaces: YAML takes none before a key"
    if "given twice" in problem:
        return "remove one of the two, or rename it"
    if "cannot start any token" in problem:
        return f"put the value in quotes: none begins with {sign} without them"
    if "mapping values are not allowed" in problem:
        return 'put a text that holds ": " in quotes, and begin each key in the column of its neighbours'
    return "correct the syntax at that line"
