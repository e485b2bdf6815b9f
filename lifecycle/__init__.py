"""The work itself: plain Python, pandas and torch. Runs without Dagster, DVC, MLflow or Great Expectations."""
