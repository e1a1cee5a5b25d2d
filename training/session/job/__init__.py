"""What the coordinator knows about the job, the nodes and workers, and the present generation (`Round`)."""
