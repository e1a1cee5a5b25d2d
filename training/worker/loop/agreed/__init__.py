"""Values that must be equal on all workers: the divisors of their gradients, their learning rates, and the sums of
numbers.
"""
