"""A worker's part in membership: the coordinator's connection, steps that can be voided, the handover of state."""
