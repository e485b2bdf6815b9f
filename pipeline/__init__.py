"""What Dagster loads, and the command line."""

import multiprocessing
import sys

if __name__ == "pipeline":
    raise ImportError("pipeline is trainworthy.pipeline now: dagster job execute -m trainworthy.pipeline.definitions …")

# Half of the processor time until a job's first step is made comes from here on (2.1 of 4.0 s); what is before is
# Dagster's own, and can say nothing of ours.
if sys.argv[1:3] == ["job", "execute"] and multiprocessing.parent_process() is None:
    print("loading the use cases, then step 1", file=sys.stderr, flush=True)
