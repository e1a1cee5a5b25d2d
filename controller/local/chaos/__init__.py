"""The fault hunt: a test of the whole system under random faults and changes."""
