"""Answers to questions about the controller and the logs, as data: for the commands and for the page."""
