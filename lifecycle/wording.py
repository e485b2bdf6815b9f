"""How names and whole numbers are said, in verdicts, reports and on the terminal alike."""

from __future__ import annotations

_REFERENCES = {"prior": "label prior", "linear": "logistic regression"}


def count(value: int) -> str:
    """A whole number with thousands separators."""
    return f"{value:,}"


def words(name: str) -> str:
    """A name of code as words: `log_loss` is `log loss`."""
    return name.replace("_", " ")


def reference_name(name: str) -> str:
    """What a candidate is compared with, as one calls it: `linear` is logistic regression."""
    return _REFERENCES.get(name, words(name))
