"""Training of one MXNet job whose workers join and leave while it runs."""
