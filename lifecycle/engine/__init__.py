"""What runs in the worker: training, preflight's checks, replay. torch is imported at the top.

Only the worker's entries import it.
"""
