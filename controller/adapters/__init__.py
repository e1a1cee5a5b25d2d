"""Adapters to AWS, one module for each service. Only the adapters import botocore."""
