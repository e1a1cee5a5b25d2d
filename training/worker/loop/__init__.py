"""Elastic training loop of a script: its trainers, batches and updates, and the undoing of steps in which a worker is
lost.

A step in which a worker is lost is *void*: the workers undo the step and repeat it.
"""
