"""The fault-injection hunt: a test of the whole system under random faults and changes of simulated users."""
