"""Transitions of a generation between its phases, such as its formation and its cancellation.

Each transition returns the orders for nodes and workers.
"""
