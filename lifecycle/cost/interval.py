"""The interval around a forecast of a run's time, and so of its cost."""

# Ends of the interval, as shares of the forecast: docs/benchmarks.md has the errors that they were chosen by.
LOW, HIGH = 0.6, 2.0
