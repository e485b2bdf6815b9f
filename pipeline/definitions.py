"""What Dagster loads by `-m trainworthy.pipeline.definitions`: the project's use cases, and nothing of a team's own."""

from __future__ import annotations

from trainworthy.pipeline.build import build_defs, load_all

_loaded, _broken = load_all()
defs = build_defs(_loaded, broken=_broken)
