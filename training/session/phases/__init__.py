"""Transitions between phases: when a generation starts, changes, is given up or ends, and the orders for that."""
