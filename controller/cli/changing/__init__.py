"""Check, describe and carry out changes that a person requests by a command or in the dashboard."""
