"""Compiled contract rules as a Great Expectations suite. The only importer of great_expectations."""

if __name__ == "expectations":
    raise ImportError("expectations is trainworthy.expectations now: from trainworthy.expectations import suite")
