"""Example training scripts, written as a user of dyntrain would write a training script."""
