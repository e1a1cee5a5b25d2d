"""Jobs launched by hand, without a cloud."""
