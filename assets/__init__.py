"""One thin file a step: read records, call lifecycle, report checks and metadata.

The files with assets have no `from __future__ import annotations`: Dagster cannot resolve a text
annotation of `context`.
"""

if __name__ == "assets":
    raise ImportError("assets is trainworthy.assets now: from trainworthy.assets import step")
