"""The emulated Lambda and EventBridge: rules, event bus, streams, schedules, handler processes, dead letters."""
