"""Files, processes and logs of the host, and how long to wait between tries."""
