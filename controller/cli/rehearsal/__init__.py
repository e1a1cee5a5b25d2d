"""Replay recorded events through the controller's code in memory, without access to AWS."""
