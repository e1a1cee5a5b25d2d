"""What a node decides: what is left to do on it, whose marker counts, when something is tried again. Pure."""
