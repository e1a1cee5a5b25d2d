"""Transitions of a generation between its phases (start, change, cancellation, end), with their orders."""
