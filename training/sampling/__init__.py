"""Computes a worker's samples in each step, and how the batch and the learning rate depend on the number of workers.

Pure.
"""
