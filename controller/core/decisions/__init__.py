"""What follows from the views: statuses, who leaves, who is replaced, what is done about it."""
