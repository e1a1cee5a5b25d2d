"""A worker's membership: its connection to the coordinator, steps that can be voided, and the handover of state."""
