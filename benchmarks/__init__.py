"""Benchmarks: each prints the hardware, a table, and ends with one JSON line."""
