"""Common parts of commands: the connection to AWS, progress and error messages, shared options."""
