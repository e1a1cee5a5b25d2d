"""Parse incoming messages: events become facts, alarms become a sentence for people."""
