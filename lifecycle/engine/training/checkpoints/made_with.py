"""What bits of a training hang on beside its identity: torch, its threads, the processor's instructions, the device."""

from __future__ import annotations

from collections.abc import Mapping

import torch

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
