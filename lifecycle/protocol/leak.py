"""What one look for leakage found, by the taxonomy of Kapoor and Narayanan (2023, Patterns 4, 100804)."""

from __future__ import annotations

from typing import Literal

from lifecycle.spec.frozen import Frozen

Taxon = Literal["L1.1", "L1.2", "L1.3", "L1.4", "L2", "L3.1", "L3.2", "L3.3"]


TAXONOMY: dict[Taxon, str] = {
    "L1.1": "no test set",
    "L1.2": "preprocessing on training and test rows",
    "L1.3": "feature selection on training and test rows",
    "L1.4": "duplicates across the splits",
    "L2": "illegitimate features",
    "L3.1": "temporal leakage",
    "L3.2": "training and test rows that are not independent",
    "L3.3": "sampling bias in the test rows",
}


class Leak(Frozen):
    """What a family saw, in one entry a column where it found something.

    `fail` and `warning` are leaks and suspicions. `insufficient` could not be measured and should have been;
    `not_applicable` has nothing to measure. `observed` and `threshold` are named in `evidence`.
    """

    taxon: Taxon
    family: str
    status: Literal["pass", "fail", "warning", "insufficient", "not_applicable"]
    columns: tuple[str, ...] = ()
    observed: float | None = None
    threshold: float | None = None
    evidence: str
    fix: str = ""
