"""The samples that a worker is given: which, in what order, loaded ahead by processes, and how they draw."""
