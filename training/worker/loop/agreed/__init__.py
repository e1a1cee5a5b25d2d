"""What all workers must agree on: divisor, rates, sums of numbers."""
