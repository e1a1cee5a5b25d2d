"""EC2, Auto Scaling and the rest as the API shows them: moto, and what it lacks."""
