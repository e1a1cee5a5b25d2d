"""Parse incoming messages: events become facts, and alarms become texts for people."""
