"""Checks of training scripts: rules with stable codes, their findings, and their pages."""
