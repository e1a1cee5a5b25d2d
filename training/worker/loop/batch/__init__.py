"""Current batch of a script: its samples, its parts, and values that belong to its rows."""
