"""Parse incoming messages: events become facts, and alarms become texts for the operators."""
