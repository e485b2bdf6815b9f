"""Values that cross a process or a disk: records, checks, jobs and results. They import the spec and nothing else."""
