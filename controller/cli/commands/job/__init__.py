"""`dyntrain job`: run any command on N machines, which end with the command."""
