"""Elastic training loop of a script: its trainers, batches and updates, and the undoing of void steps.

A step is *void*, and is repeated, if a worker is lost in it.
"""
