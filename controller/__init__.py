"""Decides which instances belong to a training job, and makes AWS and the job agree with it."""
