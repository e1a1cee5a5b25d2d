"""Runs a prepared node's worker and ps-lite processes, on the master the coordinator, and the connection to the
coordinator.
"""
