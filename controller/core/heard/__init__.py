"""Incoming messages: events into facts, alarms into sentences."""
