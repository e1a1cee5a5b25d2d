"""Probe of a script's first batch: child processes compute the gradients of the batch and of two parts, to compare."""
