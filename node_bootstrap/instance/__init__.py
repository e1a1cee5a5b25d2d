"""What the machine says of itself: metadata, identity, notices, GPUs."""
