"""Whether a deployed controller and its clusters can work, and what the code believes of AWS."""
