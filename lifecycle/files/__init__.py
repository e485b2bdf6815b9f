"""A dataset's files: versions, contents by hash, rows and the files that they name."""
