"""What a script goes through: its loop, its trainer, the batches it is given, and what happens when a step is void."""
