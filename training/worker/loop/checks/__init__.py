"""The checks of what a script does with a batch: each listens to what it calls of MXNet, and has its rules."""
