"""The audit trail of actions, and the costs of a cluster."""
