"""`dyntrain job`: any command on N machines that end with it."""
