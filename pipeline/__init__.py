"""What Dagster loads, and the command line."""

if __name__ == "pipeline":
    raise ImportError("pipeline is trainworthy.pipeline now: dagster job execute -m trainworthy.pipeline.definitions …")
