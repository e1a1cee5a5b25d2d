"""Files, processes and logs of the host."""
