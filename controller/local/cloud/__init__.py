"""The emulated AWS services: the library moto, and the behaviour of EC2 and Auto Scaling that moto lacks."""
