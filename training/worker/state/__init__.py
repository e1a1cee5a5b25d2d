"""The job's training state: its parts, its packed form, copies in memory that outlives a worker, and commits."""
