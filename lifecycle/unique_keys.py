"""Reads YAML safely and refuses a key that is given twice."""

from __future__ import annotations

import functools
from typing import Any

import yaml


@functools.cache
def unique_keys_loader() -> Any:
    """A safe loader that refuses a repeated key: YAML's default keeps the last one in silence."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            repeated = sorted({key for key in keys if keys.count(key) > 1}, key=str)
            if repeated:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {repeated[0]!r} is given twice", node.start_mark
                )
            return super().construct_mapping(node, deep)

    return Loader
