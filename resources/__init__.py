"""The outside world, one door per tool: DVC, MLflow, the worker's launcher, settings."""

if __name__ == "resources":
    raise ImportError("resources is trainworthy.resources now; in dagster.yaml: module: trainworthy.resources.storage")
