"""Analysis of MXNet's record of how a loss was computed. This package has no side effects; its only input besides
arguments is MXNet's record.
"""
