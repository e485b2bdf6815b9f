"""What Dagster loads, and the command line."""
