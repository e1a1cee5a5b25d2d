"""What comes in, and what it says: events into facts, alarms into sentences."""
