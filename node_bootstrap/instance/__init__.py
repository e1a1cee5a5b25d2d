"""What the instance reports about itself: metadata, identity, notices, GPUs."""
