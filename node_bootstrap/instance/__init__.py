"""Information about the instance: metadata, identity, notices, GPUs."""
