"""Machines of the embedded cloud: processes, each with a metadata service and, if requested, a network namespace."""
