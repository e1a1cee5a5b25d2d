"""Answers as people read them. Pure."""
