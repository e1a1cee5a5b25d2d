"""The node's reads from AWS, and its reports to the controller."""
