"""Adapters to AWS, one module for each service. Only these modules import botocore."""
