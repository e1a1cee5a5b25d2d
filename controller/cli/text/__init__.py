"""Texts of answers, for people. Pure."""
