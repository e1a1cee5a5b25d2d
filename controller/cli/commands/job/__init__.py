"""`dyntrain job`: run any command on N machines, which are terminated when the command ends."""
