"""What a script does beside its job's own functions, seen where it calls MXNet's."""
