"""`trainworthy backup` and `trainworthy restore`: what cannot be made again, whole, and back to another place."""
