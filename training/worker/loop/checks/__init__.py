"""Checks of a script's batches: each check listens to the script's calls of MXNet, and has its own rules."""
