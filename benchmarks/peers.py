"""The networks that faults are planted in, and their healthy twins, given to our battery and to public tools of others.

torchtest2 0.1.0 asks a network and a batch, torch-audit 0.3.0 and torcheck 1.0.1 watch the first updates; how each is
used stands in peers_tools.py. All faults were planted here, by who wrote our checks: our rate is one of faults whose
checks we wrote, and theirs one of faults that nobody had in mind who wrote theirs.

A tool finds a fault if one of its checks speaks that says nothing of the host without the fault. What lies in more
than one network and one training batch (rates over time, rows of validation, the order of batches, pairs of rows and
labels, seeds, checkpoints, what is declared, which position may see which), none of the three has an argument or a
notion for: those faults are counted apart. A healthy network is alarmed if a check says that it is wrong.

    make bench NAME=peers                      20 minutes on 2 cores; it fetches the three wheels, 300 KB
    python -m benchmarks.peers planted --only no_causal_mask detached
    python -m benchmarks.peers --wheels FOLDER as `pip install --no-deps --target FOLDER` left them
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_fresh import FRESH_HEALTHY
from benchmarks.healthy_gradients import HEALTHY_GRADIENTS
from benchmarks.networks import cnn, gpt, mlp, unet
from benchmarks.peers_tools import OTHERS, OURS, Known, Said, Tool, asked, fetched
from benchmarks.planted import PLANTED
from benchmarks.planted_fresh import FRESH
from benchmarks.planted_gradients import PLANTED_GRADIENTS
from benchmarks.planted_held_back import HELD_BACK
from benchmarks.result import arguments, begin, finish, hardware
from benchmarks.setup import Setup
from trainworthy.lifecycle.engine.preflight.subject import Subject

Make = Callable[[int], Subject]
# Faults that show in no single network with a training batch, its loss and its optimizer, by what they lie in.
BEYOND_ONE_BATCH: dict[str, tuple[str, ...]] = {
    "rates over time": (
        "zero_rate_early", "warmup_beyond_the_run", "decay_per_update", "cosine_in_degrees", "decay_that_grows",
        "warmup_anew_each_pass",
    ),
    "clipping and accumulation": ("clipped_to_nothing", "sum_over_the_batch"),
    "rows of validation": (
        "other_scale_in_validation", "inf_in_validation", "columns_in_another_order", "another_vocabulary",
        "reversed_in_training",
    ),
    "order of batches": ("same_batch", "sorted_batches"),
    "rows and labels that do not belong together": (
        "images_flipped_alone", "interpolated_masks", "masks_moved_alone", "mixed_inputs_alone", "other_axis",
        "shuffled_labels", "images_of_other_rows", "labels_of_the_next_row",
    ),
    "seeds and checkpoints": ("seeded_by_nothing", "hidden_state", "counts_its_passes", "unseeded_augmentation"),
    "what is declared": ("weights_not_loaded", "frozen_by_mistake"),
    "which position may see which": (
        "no_causal_mask", "mask_off_by_one", "mean_of_sequence", "asks_for_what_it_sees", "mask_transposed",
    ),
}  # fmt: skip
APART = frozenset(name for names in BEYOND_ONE_BATCH.values() for name in names)
SHORT = {"planted": ("detached",), "healthy": ("mlp",)}


@dataclass(frozen=True)
class Part:
    """Networks, whether faults are planted in them, and what a user knows of them."""

    networks: Mapping[str, Make]
    faulty: bool
    known: Known


def _subject(make: Callable[[int], Setup]) -> Make:
    return lambda seed: make(seed).subject()


# That of the loss's part with another sign has a right gradient, and belongs to neither.
_GRADIENTS = {name: _subject(make) for name, (make, told) in PLANTED_GRADIENTS.items() if told != "nothing"}
PARTS: dict[str, Part] = {
    "planted": Part(
        {name: make for name, (make, _) in {**PLANTED, **HELD_BACK, **FRESH}.items()}, True, Known(logits=True)
    ),
    "gradients": Part(_GRADIENTS, True, Known(logits=True, own_backward=True)),
    "healthy": Part({**HEALTHY, **FRESH_HEALTHY}, False, Known()),
    "unclaimed": Part(
        {name: _subject(make) for name, make in HEALTHY_GRADIENTS.items()}, False, Known(own_backward=True)
    ),
}
WORDS = {
    "planted": "planted into networks, rows and settings", "gradients": "planted into gradients",
    "healthy": "healthy", "unclaimed": "healthy of gradients, without the claims that a use case would declare",
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What one tool said of one network; of a planted fault beside its host without one."""

    network: str
    tool: str
    said: Said
    twin: Said | None = None

    @property
    def new(self) -> frozenset[str]:
        """Checks that speak, and say nothing of the host."""
        return self.said.told - (self.twin.told if self.twin else frozenset())

    @property
    def new_alarms(self) -> frozenset[str]:
        return self.said.alarms - (self.twin.alarms if self.twin else frozenset())

    @property
    def new_hints(self) -> frozenset[str]:
        return self.said.hints - (self.twin.hints if self.twin else frozenset())


def run(part: str, names: Iterable[str], tools: Mapping[str, Tool]) -> list[Asked]:
    """Every tool on every network of a part, with one seed; a line for each network."""
    asked_of = PARTS[part]
    found = []
    for name in names:
        twin = host(asked_of.networks[name](0)) if asked_of.faulty else ""
        of = []
        for tool, run_it in tools.items():
            beside = _of_host(twin, run_it, asked_of.known) if twin else None
            of.append(Asked(name, tool, asked(run_it, asked_of.networks[name](0), asked_of.known), beside))
        print(f"{part} {name}: " + "; ".join(f"{one.tool}: {_words(one)}" for one in of), flush=True)
        found += of
    return found


HOSTS: dict[str, Make] = {make.__name__: _subject(make) for make in (mlp, cnn, gpt, unet)}


def host(subject: Subject) -> str:
    """Which host a fault was planted in, by its rows: numbers, characters, or images of a class or of a mask."""
    if "numbers" in subject.training.inputs:
        return "mlp"
    if "tokens" in subject.training.inputs:
        return "gpt"
    return "cnn" if subject.training.targets.ndim == 1 else "unet"


@functools.cache
def _of_host(name: str, tool: Tool, known: Known) -> Said:
    return asked(tool, HOSTS[name](0), known)


def _words(one: Asked) -> str:
    told = [*sorted(one.new_alarms), *(f"({name})" for name in sorted(one.new - one.new_alarms))]
    raised = f" [{one.said.raised}]" if one.said.raised else ""
    return f"{', '.join(told) or 'nothing'} {one.said.cpu_seconds:.2f} s{raised}"


def table(part: str, found: Sequence[Asked]) -> dict[str, float]:
    """Print what each tool found or alarmed, its seconds and its misses; the same as figures."""
    print(f"\n{WORDS[part]}: {len({one.network for one in found})} networks")
    rows = {tool: [one for one in found if one.tool == tool] for tool in dict.fromkeys(one.tool for one in found)}
    return (_faulty if PARTS[part].faulty else _healthy)(rows)


def _faulty(rows: Mapping[str, Sequence[Asked]]) -> dict[str, float]:
    print("| tool | found of what it is asked | as an alarm | found of the others | CPU s, median | with hints |")
    print("|---|---|---|---|---|---|")
    for tool, of in rows.items():
        inside, apart = ([one for one in of if (one.network in APART) == beyond] for beyond in (False, True))
        hinted = sum(bool(one.new_hints) and not one.new for one in of)
        print(
            f"| {tool} | {_count(inside)} of {len(inside)} | {sum(bool(one.new_alarms) for one in inside)} "
            f"| {_count(apart)} of {len(apart)} | {_seconds(of):.2f} | {f'{hinted} more' if hinted else '–'} |"
        )
    for tool, of in rows.items():
        missed = [one.network for one in of if not one.new]
        asked_of = ", ".join(name for name in missed if name not in APART) or "none"
        print(f"missed by {tool}: {asked_of}; of the others: {', '.join(n for n in missed if n in APART) or 'none'}")
    return {
        f"{_key(tool)}_{name}": value
        for tool, of in rows.items()
        for name, value in (
            ("missed", sum(not one.new for one in of)), ("faults", len(of)), ("cpu_seconds", _seconds(of))
        )
    }  # fmt: skip


def _key(tool: str) -> str:
    """As a figure's name has it."""
    return tool.replace(" --", "_").replace("-", "_")


def _healthy(rows: Mapping[str, Sequence[Asked]]) -> dict[str, float]:
    print("| tool | with an alarm | with a warning alone | CPU s, median |\n|---|---|---|---|")
    for tool, of in rows.items():
        alarmed = sum(bool(one.said.alarms) for one in of)
        warned = sum(bool(one.said.warnings) and not one.said.alarms for one in of)
        print(f"| {tool} | {alarmed} | {warned} | {_seconds(of):.2f} |")
    for tool, of in rows.items():
        told = [f"{one.network} ({', '.join(sorted(one.said.alarms))})" for one in of if one.said.alarms]
        print(f"alarmed by {tool}: {'; '.join(told) or 'none'}")
    return {
        f"{_key(tool)}_{name}": value
        for tool, of in rows.items()
        for name, value in (("alarms", sum(bool(one.said.alarms) for one in of)), ("cpu_seconds", _seconds(of)))
    }


def _count(of: Sequence[Asked]) -> int:
    return sum(bool(one.new) for one in of)


def _seconds(of: Sequence[Asked]) -> float:
    return statistics.median(one.said.cpu_seconds for one in of)


def _tools(wheels: Path | None, folder: Path, short: bool) -> dict[str, Tool]:
    """Ours and the others; in a short run ours alone where the others cannot be fetched, which is said."""
    if wheels is not None:
        sys.path.insert(0, str(wheels))
        return OURS | OTHERS
    try:
        fetched(folder)
    except subprocess.CalledProcessError:
        if not short:
            raise
        print("the wheels of the others cannot be fetched here: ours alone")
        return OURS
    return OURS | OTHERS


def main() -> None:
    """Run all parts, or the one that is named."""
    parser = arguments(__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="all of them without it")
    parser.add_argument("--only", nargs="+", default=(), help="networks of that part; all of them without it")
    parser.add_argument("--tools", nargs="+", choices=OURS | OTHERS, help="some tools; all of them without it")
    parser.add_argument(
        "--wheels", type=Path, help="a folder that the three were installed into; else they are fetched"
    )
    given = parser.parse_args()
    begin(given.short)
    # The networks are so small that a second thread costs more than it gives.
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        tools = _tools(given.wheels, Path(folder), given.short)
        tools = {name: tool for name, tool in tools.items() if not given.tools or name in given.tools}
        for part in [given.part] if given.part else SHORT if given.short else PARTS:
            every = tuple(PARTS[part].networks)
            names = given.only or (SHORT.get(part, every[:1]) if given.short else every)
            figures |= {f"{part}_{name}": value for name, value in table(part, run(part, names, tools)).items()}
    print(hardware(), flush=True)
    counts = {name for name in figures if name.endswith(("missed", "alarms"))}
    finish("peers", figures, {}, short=given.short, zero_allowed=counts)


if __name__ == "__main__":
    main()
