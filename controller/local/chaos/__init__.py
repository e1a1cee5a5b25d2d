"""The fault-injection hunt: a test of the whole system under random faults, while simulated users change the cluster."""
