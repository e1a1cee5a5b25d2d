"""Loads a worker's samples: their choice and order, the processes that prefetch batches, random draws."""
