"""A worker's part in the job's membership: the line to the coordinator, steps that can be voided, the handover."""
