"""What models are measured by, as records keep it: a suite, what changed of it, and how many have looked."""

from __future__ import annotations

from typing import Any

from trainworthy.lifecycle.spec.frozen import Frozen


class Suite(Frozen):
    """What models are measured by: rows, metrics, slices and limits under a name and a version.

    `rows` is the sha256 of the benchmark's file, `label` that of the label's definition, `code` that of the modules
    that answer and measure, `files` those of the files that slices and metrics are of. `declared` is the section
    benchmark of use_case.yaml. `sha256` is over all of them: two models are compared on one suite.
    """

    name: str
    version: int
    rows: str
    label: str
    code: str
    files: dict[str, str]
    declared: dict[str, Any]
    sha256: str


class ChangedLimit(Frozen):
    """Something of a suite that is declared otherwise than for the verdict before; `by` whom, as git has it.

    The values are JSON; null for what is not there.
    """

    key: str
    before: str
    now: str
    by: str


class Looks(Frozen):
    """How many different models were measured on the rows of a suite, this one among them."""

    models: int
    since: str
