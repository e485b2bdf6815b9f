"""By how many processes the updates were made that a rerun makes again: their bits hang on it."""

from __future__ import annotations

from trainworthy.lifecycle.protocol.records import StageReport
from trainworthy.lifecycle.spec.use_case import ComputeSpec


def processes_of_prefix(full: StageReport) -> tuple[int, ...]:
    """Each number in turn; () where it was not recorded."""
    return tuple(part.processes for part in full.made_by if part.first_step <= full.prefix_steps)


def made_by_several(full: StageReport) -> str:
    """Why no rerun has the bits of these updates; empty if one may have them."""
    numbers = processes_of_prefix(full)
    if len(numbers) < 2:
        return ""
    named = ", then ".join(map(str, numbers))
    return f"the first {full.prefix_steps} updates were made by {named} processes, whose bits no rerun has: train again"


def processes_of_rerun(full: StageReport, compute: ComputeSpec) -> int:
    """As many as made the first updates, if the use case may train by so many; else all that it declares."""
    offered = {nodes * compute.processes_each for nodes in range(compute.fewest_nodes, compute.nodes + 1)}
    return next((number for number in processes_of_prefix(full) if number in offered), compute.processes)
