"""What operations keep after them that fake tensors do not show.

oneDNN's LSTM returns a workspace, which is empty on fake tensors: a forecast without it was 65 % short. So the same
update is followed and run, both on the same few rows, and what is held after each operation is compared.
"""

from __future__ import annotations

from collections import defaultdict

from trainworthy.lifecycle.engine.preflight.memory.fake_step import Timeline
from trainworthy.lifecycle.engine.preflight.memory.line import line


def unfollowed(whole: Timeline, fake: tuple[Timeline, ...], real: tuple[Timeline, ...]) -> list[int]:
    """Bytes that the whole step holds over what was followed, after each operation.

    `fake` and `real` are first updates of as many parts, on the same rows each. Only names are compared that all ran
    equally often; after other operations the bytes are those of the one before. Less than was followed counts as none.
    """
    steps = [(one.rows, _more(one, other)) for one, other in zip(fake, real, strict=True)]
    numbers = _held(whole)
    found: list[int | None] = [None] * len(whole.operations)
    for name, at in numbers.items():
        more = [(rows, names.get(name, ())) for rows, names in steps]
        if any(len(sizes) != len(at) for _, sizes in more):
            continue
        for count, (number, _) in enumerate(at):
            points = [(rows, sizes[count]) for rows, sizes in more]
            found[number] = max(0, round(line(points, whole.rows)))
    now, filled = 0, []
    for size in found:
        now = now if size is None else size
        filled.append(now)
    return filled


def _held(step: Timeline) -> dict[str, list[tuple[int, int]]]:
    """Number and bytes held of each operation, by name."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, (operation, held) in enumerate(zip(step.operations, step.held, strict=True)):
        found[operation].append((number, held))
    return found


def _more(fake: Timeline, real: Timeline) -> dict[str, list[int]]:
    """What the real step held over the followed one after each operation, by the names that both ran equally often."""
    followed, ran = _held(fake), _held(real)
    return {
        name: [more - held for (_, held), (_, more) in zip(followed[name], ran[name], strict=True)]
        for name in followed.keys() & ran.keys()
        if len(followed[name]) == len(ran[name])
    }
