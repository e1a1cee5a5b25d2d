"""`dyntrain job`: run any command on N machines, which are terminated after the command."""
