"""Decisions of a node, as pure functions: which steps are left, whether a success marker is valid, when to retry."""
