"""What runs the handlers: rules, event bus, stream, schedules, environments, dead letters."""
