"""The emulated Lambda and EventBridge: event rules, event bus, streams, schedules, handler processes, dead letters."""
