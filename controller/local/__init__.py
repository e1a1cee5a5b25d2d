"""The embedded cloud: AWS on one machine, for demos and tests. Never deployed."""
