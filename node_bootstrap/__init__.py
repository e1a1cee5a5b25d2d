"""Runs on every node: prepares it, reports it, and owns its worker and ps-lite processes."""
