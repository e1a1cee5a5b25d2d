"""Adapters that implement the controller's interfaces with AWS services. Only the adapters in this package import
botocore.
"""
