"""The loop that gives idle reserved instances to clusters: read, decide, act."""
