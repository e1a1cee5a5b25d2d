"""What a prepared node runs: the worker, its ps-lite processes, on the master the coordinator, and the connection to
it.
"""
