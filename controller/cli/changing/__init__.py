"""Changes that a person requests, for the commands and for the page: checked, described, and carried out."""
