"""Computations on one generation (group of workers), which need no other knowledge of the job.

The modules determine a generation's members, its first state, its ps-lite processes, and each member's source of the
state. One module makes the orders that free the surviving workers after another worker was lost.
"""
