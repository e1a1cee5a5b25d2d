"""The loop that hands idle reserved instances to clusters: gather, decide, apply."""
