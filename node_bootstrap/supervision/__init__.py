"""Runs the worker and the ps-lite processes of a prepared node, and connects the node to the coordinator.

One base node also runs the coordinator.
"""
