"""Common parts of commands: the connection to AWS, progress messages, error messages, and options."""
