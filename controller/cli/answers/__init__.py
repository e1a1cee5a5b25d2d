"""What people ask of the controller and of the logs, as data: for the commands and for the page."""
