"""The fault-injection hunt: a test of the system under random faults, while simulated users change the cluster."""
