"""The demo: its story, display and report."""
