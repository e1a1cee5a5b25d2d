"""The present state of an instance and of a cluster, the target, and the reasons shown to people."""
