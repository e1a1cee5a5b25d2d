"""Current batch of a script: its samples, the parts for a small memory, and values that belong to its rows."""
