"""Compiled contract rules as a Great Expectations suite. The only importer of great_expectations."""
