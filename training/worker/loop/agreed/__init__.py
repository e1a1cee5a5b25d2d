"""What all workers must mean alike: what a step divides by, rates, sums of numbers."""
