"""Which samples a worker takes, how the batch and its statistics follow the number of workers. Pure."""
