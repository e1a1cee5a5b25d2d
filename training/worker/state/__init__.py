"""The state of the job: what it is, as one block of bytes, in memory that outlives a worker, and in commits."""
