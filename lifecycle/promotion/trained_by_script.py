"""Whether the end of a training by a use case's own script hangs on where it was interrupted."""

from __future__ import annotations

from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.protocol.records import PreflightReport, StageReport


def inexact_resume(script: str | None, full: StageReport, preflight: PreflightReport) -> str:
    """Why an uninterrupted training may have ended otherwise; empty if it was none of a script, or not interrupted.

    Our own loop resumes bit for bit. Of a script that is known only where preflight's trial has shown it.
    """
    if script is None or not full.resumed_from_step:
        return ""
    (trial,) = [trial for trial in trials_of(preflight.checks) if trial.check == "trainer.resumes"] or [None]
    if trial is not None and trial.status == "pass":
        return ""
    shown = "preflight did not try it" if trial is None else trial.evidence
    return (
        f"{script} was resumed at step {full.resumed_from_step}, and not shown to end as an uninterrupted one: {shown}"
    )
