"""What bits of a training hang on beside its identity: torch, its threads, the processor's instructions, the device.

And by how many processes each of its updates was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from trainworthy.lifecycle.protocol.training_figures import MadeBy
from trainworthy.lifecycle.spec.use_case import Sharding


def made_with(device: str, processes: int = 1, sharding: Sharding = "none") -> dict[str, str]:
    """What this process computes with; `device` as torch names it. All by name, as a manifest holds it.

    `processes` are those that train together, each with the whole model unless `sharding` divides it.
    """
    computing = {
        "torch": str(torch.__version__),
        "threads": str(torch.get_num_threads()),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        "processes": str(processes),
        "sharding": sharding,
    }
    if device == "cuda":
        computing["gpu"] = torch.cuda.get_device_name()
    return computing


def resumed_elsewhere(made: Mapping[str, str], here: Mapping[str, str]) -> tuple[str, ...]:
    """A note if a checkpoint was made with something else, since the end is then not equal bit for bit."""
    other = [
        f"{name} {value} instead of {made[name]}" for name, value in here.items() if made.get(name, value) != value
    ]
    if not other:
        return ()
    return (f"resumed with {', '.join(other)}: not bit for bit what an uninterrupted training would give",)


def made_until(made_by: Iterable[MadeBy], step: int) -> tuple[MadeBy, ...]:
    """Those of them that have made an update up to this step."""
    return tuple(part for part in made_by if part.first_step <= step)


def goes_on_by(made_by: Iterable[MadeBy], step: int, processes: int) -> tuple[MadeBy, ...]:
    """Who has made a training up to this step, and the processes that make the next update."""
    before = made_until(made_by, step)
    if before and before[-1].processes == processes:
        return before
    return (*before, MadeBy(first_step=step + 1, processes=processes))


def made_in_words(made_by: tuple[MadeBy, ...]) -> tuple[str, ...]:
    """A note of how many processes trained; none if it was one throughout."""
    if not made_by or (len(made_by) == 1 and made_by[0].processes == 1):
        return ()
    first, *later = made_by
    then = "".join(f", by {part.processes} from update {part.first_step} on" for part in later)
    some = f"{first.processes} process{'es' * (first.processes > 1)}"
    return (f"trained by {some}{then}, each on its share of every batch",)
