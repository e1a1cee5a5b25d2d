"""The emulated AWS services: moto, and the behaviour of EC2 and Auto Scaling that moto lacks."""
