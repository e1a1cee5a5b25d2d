"""The audit trail of actions, and costs."""
