"""Decisions from the views: statuses, who leaves, who is replaced, which actions follow."""
