"""What is set back with a step that is void."""
