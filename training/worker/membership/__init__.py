"""A worker's membership in a job: its connection to the coordinator, steps that can be voided, state transfer."""
