"""Where a worker runs: one contract (backend.py), and a file for each kind of machine that keeps it."""
