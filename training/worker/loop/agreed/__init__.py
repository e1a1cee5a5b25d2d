"""Values that must be equal on all workers: divisors of gradients, learning rates, sums of numbers."""
