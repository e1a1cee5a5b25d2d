"""Training scripts as users write them."""
