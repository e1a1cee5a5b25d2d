"""Check whether a deployed controller and its clusters can work, and list what the code assumes about AWS."""
