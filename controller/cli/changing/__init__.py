"""What a person asks to be changed, for the commands and for the page: checked, put into words, and carried out."""
