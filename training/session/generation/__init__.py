"""Computations on one generation (group of workers), independent of the job.

The modules determine a generation's members, its first state, its ps-lite processes, each member's source of the state,
and the orders that free the survivors of a loss.
"""
