"""The work itself: plain Python, pandas and torch. Runs without Dagster, DVC, MLflow or Great Expectations."""

if __name__ == "lifecycle":
    # By its folder, from a checkout: what is imported by the earlier name is trainworthy.lifecycle itself.
    import importlib
    import sys

    sys.modules[__name__] = importlib.import_module("trainworthy.lifecycle")
