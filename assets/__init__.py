"""One thin file a step: read records, call lifecycle, report checks and metadata."""
