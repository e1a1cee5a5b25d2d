"""Checks of a user's script besides its training: its source, `fit`'s arguments, and how it leaves its loop."""
