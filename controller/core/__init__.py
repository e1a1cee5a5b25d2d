"""What is true of a cluster and what follows from it. Pure: no AWS, no clock, no files."""
