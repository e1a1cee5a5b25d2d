"""Probe of a script's first batch: child processes compute its gradients whole and in two parts, to compare them."""
