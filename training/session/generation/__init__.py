"""Computations on one generation, without the job.

Its members, the state it starts from, its ps-lite group, who fetches the state from whom, and how survivors free
themselves.
"""
