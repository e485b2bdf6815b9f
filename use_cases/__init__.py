"""One folder a use case; each imports lifecycle, torch and data libraries only."""
