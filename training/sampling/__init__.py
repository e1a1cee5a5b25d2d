"""Which samples a worker takes, and how batch and statistics follow the number of workers. Pure."""
