"""The handlers' work: gather, decide, apply. This code calls AWS only through `ports`."""
