"""Decisions of a node, as pure functions: which steps are left, whether a marker counts, when to retry."""
