"""What Dagster loads by `-m trainworthy.pipeline.definitions`: the project's use cases, and nothing of a team's own."""

from __future__ import annotations

import gc
import multiprocessing
import sys

# Nearly all that we import before a job's first step comes from here on; what is before is Dagster's own start.
if sys.argv[1:3] == ["job", "execute"] and multiprocessing.parent_process() is None:
    print("loading the use cases, then step 1", file=sys.stderr, flush=True)

# Nothing made here goes away: collections only walked all that Dagster has loaded, 0.1 of 0.4 CPU seconds, and would
# again at each later one, but for freeze.
_collected = gc.isenabled()
gc.disable()
try:
    from trainworthy.pipeline.build import build_defs, load_all

    _loaded, _broken = load_all()
    defs = build_defs(_loaded, broken=_broken)
    gc.freeze()
finally:
    if _collected:
        gc.enable()
