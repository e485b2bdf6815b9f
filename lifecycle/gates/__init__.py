"""What Dagster's process needs of preflight and stages, without torch: the catalogue of checks, and what decides."""
