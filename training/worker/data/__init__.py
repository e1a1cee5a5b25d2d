"""A worker's samples: which and in what order, how processes prefetch them, and their random draws."""
