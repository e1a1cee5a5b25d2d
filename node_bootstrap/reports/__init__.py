"""What the node reads from AWS and tells it."""
