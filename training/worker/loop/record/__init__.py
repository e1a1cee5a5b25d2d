"""What MXNet recorded of what is differentiated, and what follows from that. Pure but for the reading of it."""
