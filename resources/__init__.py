"""The outside world, one door per tool: DVC, MLflow, the worker's launcher, settings."""
