"""Checks of a user's script outside of its training steps: its source, its arguments of `fit`, and how its
loop ends.
"""
