"""The command-line program `dyntrain`, which runs on a person's machine and is never deployed to AWS."""
