"""What the handlers run: gather, decide, apply. AWS is reached through `ports`."""
