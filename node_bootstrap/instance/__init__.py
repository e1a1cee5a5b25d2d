"""Information about the EC2 instance: metadata, identity, interruption notices and GPUs."""
