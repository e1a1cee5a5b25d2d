"""A worker's samples in each step, and the batch, rate and statistics by the number of workers. Pure."""
