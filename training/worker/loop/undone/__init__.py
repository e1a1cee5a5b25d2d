"""What a void step restores."""
