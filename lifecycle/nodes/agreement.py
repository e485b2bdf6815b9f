"""Whether the ranks of several nodes may start: what each node has answered, as one error for all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG
from trainworthy.lifecycle.nodes.node import Node

# A file of another machine may be seen so much later than its word that it is written.
LATE_SECONDS = 60.0
ErrorReport = dict[str, Any]


def agreed(answers: Mapping[int, ErrorReport | None], node: Node, seconds: float) -> tuple[int, ErrorReport | None]:
    """Exit code and error if a node cannot train what the first does, or did not come within so many seconds.

    `answers` are those of the nodes that came, None of one that can.
    """
    late = [number for number in range(node.nodes) if number not in answers]
    if late:
        named = ", ".join(map(str, late))
        return EXIT_HANG, {
            "problem": f"node {named} of {node.nodes} did not come within {seconds:.0f} s",
            "value": node.endpoint,
            "fix": "start the agent of each node, and let them reach this port of the first",
        }
    bad = {number: refusal for number, refusal in answers.items() if refusal is not None}
    if not bad:
        return 0, None
    values = [str(refusal["value"]) for refusal in bad.values() if refusal["value"] is not None]
    return EXIT_BAD_INPUT, {
        "problem": "; ".join(f"node {number} of {node.nodes}: {refusal['problem']}" for number, refusal in bad.items()),
        "value": "; ".join(values) or None,
        "fix": "; ".join(dict.fromkeys(refusal["fix"] for refusal in bad.values())),
    }


def is_same(path: Path, content: str) -> bool:
    """True once a file is seen with this content, which another machine has just written."""
    until = time.monotonic() + LATE_SECONDS
    while True:
        with contextlib.suppress(OSError):
            if path.read_text() == content:
                return True
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
