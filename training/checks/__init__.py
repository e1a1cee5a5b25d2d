"""Rules for training scripts, each with a stable code and a page of text, and findings, which report broken rules."""
