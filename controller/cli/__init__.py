"""The command `dyntrain`. Never deployed."""
