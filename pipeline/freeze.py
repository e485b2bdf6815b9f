"""What `trainworthy freeze` does: a confirmed blind spot becomes a slice of the benchmark, in the suite's next version.

Only these keys of use_case.yaml are added or changed; comments and form of the file stay.
"""

from __future__ import annotations

from typing import Any

import yaml

from trainworthy.lifecycle.contract.draft import inline
from trainworthy.lifecycle.errors import RecordError, SettingsError
from trainworthy.lifecycle.protocol.figures import BlindSpot
from trainworthy.lifecycle.protocol.records import EvaluationReport
from trainworthy.lifecycle.run_config import told_command
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.pipeline.show import find_use_case
from trainworthy.resources.settings import read_settings
from trainworthy.resources.shared_state import records_of


def freeze(name: str, number: int) -> str:
    """Write the spot of that number, as the newest report lists them, and say so.

    Raises RecordError without an evaluation or such a spot, SettingsError where the file cannot be edited as it is.
    """
    use_case = find_use_case(name)
    spot, benchmark = _confirmed(spots_of(name), number), use_case.spec.benchmark
    if spot.rule in {slice_spec.where for slice_spec in benchmark.slices}:
        return f"nothing to write: benchmark.slices has {spot.rule} already\n"
    declared = {"where": spot.rule, "champion_margin": benchmark.primary.margin}
    path = use_case.folder / "use_case.yaml"
    text = path.read_text(encoding="utf-8")
    changed = with_slice(text, declared, benchmark.version + 1)
    shared = use_case.suite_path is not None
    if shared or not _adds_only_the_slice(text, changed, declared, benchmark):
        raise SettingsError(
            "the suite is a file of its own"
            if shared
            else "use_case.yaml is not written in a form that can be added to",
            value=f"suites/{benchmark.suite}.yaml" if shared else str(path),
            fix=f"add to its slices by hand: {inline(declared)}, and raise version",
        )
    write_atomic(path, changed.encode())
    return (
        f"wrote    {path}\n"
        f"slice    {inline(declared)}: no worse there than the champion by more than the primary margin\n"
        f"version  {benchmark.version + 1} of the suite\n"
    )


def spots_of(name: str) -> tuple[BlindSpot, ...]:
    """Blind spots of the newest evaluation. Raises RecordError without one."""
    report = records_of(read_settings()).newest(name, "evaluation")
    if not isinstance(report, EvaluationReport):
        fix = f"run: {told_command('train', name)}"
        raise RecordError("there is no evaluation yet", value=name, fix=fix)
    return report.blind_spots


def _confirmed(spots: tuple[BlindSpot, ...], number: int) -> BlindSpot:
    if not 1 <= number <= len(spots):
        fix = f"take a number from 1 to {len(spots)}" if spots else "there is nothing to freeze"
        count = "1 blind spot" if len(spots) == 1 else f"{len(spots)} blind spots"
        raise RecordError(f"the newest evaluation found {count}", value=number, fix=fix)
    if not spots[number - 1].confirmed:
        fix = "take a confirmed one; to watch this part all the same, write its rule into benchmark.slices"
        problem = "this blind spot was not confirmed on other groups"
        raise RecordError(problem, value=spots[number - 1].rule, fix=fix)
    return spots[number - 1]


def with_slice(text: str, declared: dict[str, Any], version: int) -> str:
    """The file with one more slice, and with this version of the suite."""
    benchmark = _child(yaml.compose(text, Loader=yaml.SafeLoader), "benchmark")
    slices = _child(benchmark, "slices")
    if isinstance(slices, yaml.SequenceNode):
        text = _with_item(text, slices, inline(declared))
    elif isinstance(benchmark, yaml.MappingNode):
        text = _with_key(text, benchmark, f"slices: [{inline(declared)}]")
    benchmark = _child(yaml.compose(text, Loader=yaml.SafeLoader), "benchmark")
    present = _child(benchmark, "version")
    if isinstance(present, yaml.ScalarNode):
        return f"{text[: present.start_mark.index]}{version}{text[present.end_mark.index :]}"
    return _with_key(text, benchmark, f"version: {version}") if isinstance(benchmark, yaml.MappingNode) else text


def _child(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _with_key(text: str, mapping: yaml.MappingNode, line: str) -> str:
    """The line as the mapping's first key."""
    if not mapping.value:
        return text
    start = mapping.value[0][0].start_mark
    between = ", " if mapping.flow_style else f"\n{' ' * start.column}"
    return f"{text[: start.index]}{line}{between}{text[start.index :]}"


def _with_item(text: str, items: yaml.SequenceNode, item: str) -> str:
    """The item as the list's last one where it is written in brackets, else as the first."""
    if items.flow_style:
        at = items.value[-1].end_mark.index if items.value else items.start_mark.index + 1
        return f"{text[:at]}{', ' if items.value else ''}{item}{text[at:]}"
    start = items.start_mark
    return f"{text[: start.index]}- {item}\n{' ' * start.column}{text[start.index :]}"


def _adds_only_the_slice(before: str, after: str, declared: dict[str, Any], benchmark: BenchmarkSpec) -> bool:
    """True if nothing but the slice and the version differs."""
    then, now = yaml.safe_load(before), yaml.safe_load(after)
    slices = now["benchmark"].pop("slices", None) or []
    if now["benchmark"].pop("version", None) != benchmark.version + 1 or declared not in slices:
        return False
    slices_before = then["benchmark"].pop("slices", None) or []
    then["benchmark"].pop("version", None)
    return then == now and [entry for entry in slices if entry != declared] == slices_before
