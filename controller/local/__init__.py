"""The embedded cloud: an emulation of AWS on one machine, for demos and tests. The embedded cloud is never deployed to
AWS.
"""
