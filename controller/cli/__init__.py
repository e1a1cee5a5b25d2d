"""The command-line program `dyntrain`. It is never deployed to AWS."""
