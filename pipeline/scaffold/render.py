"""The generated files from their templates; every name goes through a filter, so that none can break out.

`yaml`, `py`, `pylist` and `sh` quote. `name` is for a use case's name inside of other text, where nothing could be
quoted: it gives the name as it is, and refuses one that is none.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.contract.draft import inline
from trainworthy.lifecycle.spec.names import NAME_PATTERN

FOLDER = Path(__file__).parent / "templates"


def rendered(template: str, **values: Any) -> str:
    """The text of a template. A value that it names and does not get is an error."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Any:
    import jinja2

    # No HTML is made here, so nothing is escaped for it.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "yaml": inline,
        "py": _python,
        "pylist": _python_list,
        "pytuple": _python_tuple,
        "sh": shlex.quote,
        "name": _name,
    }
    return environment


def _python(value: Any) -> str:
    """A value as Python writes it, texts in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _python_list(values: list[str]) -> str:
    """A list with an item a line, as the formatter writes it."""
    return "".join(["[", *(f"\n    {_python(value)}," for value in values), "\n]" if values else "]"])


def _python_tuple(values: Sequence[str]) -> str:
    """A tuple on one line, as the formatter writes it."""
    return f"({', '.join(map(_python, values))}{',' if len(values) == 1 else ''})"


def _name(value: str) -> str:
    """A use case's name. Raises ValueError for any other text: it would be run as code."""
    if not re.fullmatch(NAME_PATTERN, value):
        raise ValueError(f"no name of a use case: {value!r}")
    return value
