"""Current batch of a script: its samples, its parts, its rows."""
