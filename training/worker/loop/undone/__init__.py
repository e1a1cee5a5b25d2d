"""Copies from which a worker restores its state after a void step."""
