"""The generated files from their templates; every name goes through a filter, so that none can break out."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from lifecycle.contract.draft import inline

FOLDER = Path(__file__).parent / "templates"


def rendered(template: str, **values: Any) -> str:
    """The text of a template. A value that it names and does not get is an error."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Any:
    import jinja2

    # No HTML is made here: `yaml`, `py` and `pylist` quote for the files that are.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"yaml": inline, "py": _python, "pylist": _python_list}
    return environment


def _python(value: Any) -> str:
    """A value as Python writes it, texts in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _python_list(values: list[str]) -> str:
    """A list with an item a line, as the formatter writes it."""
    return "".join(["[", *(f"\n    {_python(value)}," for value in values), "\n]" if values else "]"])
