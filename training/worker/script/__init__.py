"""What a script of somebody else is asked and told beside its training: what its source shows, how it left its loop."""
