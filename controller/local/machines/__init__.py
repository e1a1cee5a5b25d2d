"""Machines of the embedded cloud: processes, each with a metadata service and, where wanted, a network namespace."""
