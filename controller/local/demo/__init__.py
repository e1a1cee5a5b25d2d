"""The demo's story, told and reported."""
