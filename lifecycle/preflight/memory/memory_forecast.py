"""What is told about memory: an update's peak by kind, and whether it fits each GPU."""

from __future__ import annotations

from lifecycle.protocol.forecasts import MemoryForecast

# The rule of 40 GB a billion parameters. Told beside the forecast, since readers know it; it decides nothing.
RULE_BYTES = 40


def step_in_words(step: MemoryForecast) -> str:
    """The update's peak, its kinds from the largest on, and the common rule beside it."""
    kinds = sorted(((size, kind) for kind, size in step.kinds.items() if size), reverse=True)
    parts = ", ".join(f"{kind} {_megabytes(size)}" for size, kind in kinds)
    rule = _megabytes(RULE_BYTES * step.parameter_count)
    scoring = f"scoring the validation split holds more: {_megabytes(step.scoring)}; " * (step.scoring > step.value)
    return scoring + (
        f"an update of {step.rows} rows a forward pass in {step.precision} holds {_megabytes(step.value)} "
        f"({parts or step.source}); 40 GB a billion parameters would be {rule}"
    )


def _megabytes(size: int) -> str:
    if size < 1e6:
        return f"{size / 1e3:.0f} kB" if size >= 1e4 else f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"
