"""MXNet's record of what is differentiated, and what follows from it. Pure except for reading it."""
