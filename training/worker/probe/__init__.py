"""Probe of a script's first batch: whether its gradients are those of two parts of it, computed in child processes."""
