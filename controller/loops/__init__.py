"""The handlers' loops: gather, decide, apply. AWS is reached through `ports`."""
