"""A worker's samples: their choice and order, the processes that prefetch them, and their random draws."""
