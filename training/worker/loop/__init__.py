"""Elastic training loop of a script: trainers, batches, updates, and what happens when a step is void."""
