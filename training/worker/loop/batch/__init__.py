"""Current batch of a script: its samples, the parts that a small memory requires, and values that belong to its rows.
"""
