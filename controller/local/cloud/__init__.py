"""EC2, Auto Scaling and other services as their APIs show them: moto, and what it lacks."""
