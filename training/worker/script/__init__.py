"""What a user's script shows besides its training: in its source, in `fit`'s arguments, in how it leaves its loop."""
