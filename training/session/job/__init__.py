"""The coordinator's knowledge of the job, the nodes and workers, and the present generation (`Round`)."""
