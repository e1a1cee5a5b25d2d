"""The handlers' runtime: rules, event bus, stream, schedules, environments, dead letters."""
