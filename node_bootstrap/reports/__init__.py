"""Reads the node's configuration from AWS, and sends the node's reports to the controller."""
