"""What one look for leakage found, by the taxonomy of Kapoor and Narayanan (2023, Patterns 4, 100804)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.spec.frozen import Frozen

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
    `not_applicable` has nothing to measure. `observed` and `threshold` are named in `evidence`. `suspicion` is what is
    worth a look though it passed, in words; it decides nothing.
    """

    taxon: Taxon
    family: str
    status: Literal["pass", "fail", "warning", "insufficient", "not_applicable"]
    columns: tuple[str, ...] = ()
    observed: float | None = None
    threshold: float | None = None
    evidence: str
    fix: str = ""
    suspicion: str = ""


def suspicions(checks: Iterable[CheckResult]) -> tuple[str, ...]:
    """What checks of leakage found suspicious and did not show to be a leak."""
    details = [detail for check in checks for detail in check.details]
    return tuple(str(detail["suspicion"]) for detail in details if detail.get("suspicion"))


def leakage_check(name: str, findings: Sequence[Leak], device: str = "host") -> CheckResult:
    """All findings as one check: a fail stops, a warning alone does not; what was not measured is insufficient."""
    by_status = {status: [f for f in findings if f.status == status] for status in ("fail", "warning", "insufficient")}
    leaks = [*by_status["fail"], *by_status["warning"]]
    details = tuple(finding.model_dump(mode="json") for finding in findings)
    if leaks:
        severity = "error" if by_status["fail"] else "warning"
        evidence = "; ".join(f"{_named(finding)}: {finding.evidence}" for finding in leaks)
        fix = "; ".join(dict.fromkeys(finding.fix for finding in leaks))
        return CheckResult(
            name=name, status="fail", severity=severity, device=device, observed=len(leaks), threshold=0,
            evidence=evidence, fix=fix, details=details,
        )  # fmt: skip
    if by_status["insufficient"] or not findings:
        evidence = "; ".join(f"{_named(finding)}: {finding.evidence}" for finding in by_status["insufficient"])
        fix = "; ".join(dict.fromkeys(finding.fix for finding in by_status["insufficient"] if finding.fix))
        return CheckResult(
            name=name, status="insufficient", device=device, evidence=evidence or "nothing was looked at", fix=fix,
            details=details,
        )  # fmt: skip
    looked = ", ".join(dict.fromkeys(finding.family for finding in findings if finding.status == "pass"))
    suspected = [f"suspicious, not shown to be a leak: {one.suspicion}" for one in findings if one.suspicion]
    return CheckResult(
        name=name, status="pass", device=device, observed=0, threshold=0,
        evidence="; ".join([f"no leak seen by {looked}", *suspected]), details=details,
    )  # fmt: skip


def _named(finding: Leak) -> str:
    columns = f" of {', '.join(finding.columns)}" if finding.columns else ""
    return f"{finding.taxon} {finding.family}{columns}"
