"""What the node reads from AWS and reports to it."""
