"""What a training script is told of itself: rules with stable codes, what was found by them, and their pages."""
