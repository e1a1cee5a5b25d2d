"""Runs the worker and the ps-lite processes of a prepared node, its connection to the coordinator, and on one base node
the coordinator itself.
"""
