"""Texts that follow a regular expression, for the common ones; another text where that fails."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# How often a repetition without an upper bound is repeated at most beyond its lower one.
MOST_REPEATS = 3
_CLASSES = {"CATEGORY_DIGIT": string.digits, "CATEGORY_SPACE": " ", "CATEGORY_WORD": string.ascii_letters + "_"}
_PRINTED = string.ascii_letters + string.digits


def text_like(pattern: str, generator: np.random.Generator) -> str:
    """A text in which `pattern` is found; without one, or if it can't be followed, any short text."""
    anything = "".join(generator.choice(list(string.ascii_lowercase), 6))
    if not pattern:
        return anything
    # The parser is private to Python; what it gives is verified, so that a change of it costs a text at most.
    try:
        text = _drawn(re._parser.parse(pattern), generator)  # pyright: ignore[reportAttributeAccessIssue]
    except (AttributeError, KeyError, LookupError, TypeError, ValueError):
        return anything
    return text if re.search(pattern, text) else anything


def _drawn(parsed: Any, generator: np.random.Generator) -> str:
    return "".join(_item(str(kind), argument, generator) for kind, argument in parsed)


def _item(kind: str, argument: Any, generator: np.random.Generator) -> str:
    match kind:
        case "LITERAL":
            return chr(argument)
        case "ANY" | "NOT_LITERAL":
            return str(generator.choice([sign for sign in _PRINTED if ord(sign) != argument]))
        case "IN":
            return str(generator.choice(_signs(argument)))
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return ""
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, inner = argument
            times = int(generator.integers(least, min(int(most), least + MOST_REPEATS) + 1))
            return "".join(_drawn(inner, generator) for _ in range(times))
        case "SUBPATTERN":
            return _drawn(argument[-1], generator)
        case "BRANCH":
            return _drawn(argument[1][int(generator.integers(len(argument[1])))], generator)
    raise ValueError(kind)


def _signs(items: Any) -> list[str]:
    """The characters of a set such as [A-Z_]; of a negated one those that are left."""
    found: set[str] = set()
    for kind, argument in items:
        match str(kind):
            case "LITERAL":
                found.add(chr(argument))
            case "RANGE":
                found |= {chr(code) for code in range(argument[0], min(argument[1], argument[0] + 255) + 1)}
            case "CATEGORY":
                found |= set(_CLASSES[str(argument)])
    if str(items[0][0]) == "NEGATE":
        return sorted(set(_PRINTED) - found)
    return sorted(found)
