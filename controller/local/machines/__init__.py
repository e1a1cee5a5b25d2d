"""Machines of the embedded cloud (an emulation of AWS): groups of processes, each with a metadata service and, if
requested, a network namespace.
"""
