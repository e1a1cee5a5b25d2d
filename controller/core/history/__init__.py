"""What was done, and what it cost."""
