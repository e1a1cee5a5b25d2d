"""Submit a job: check the request, pack the code, and launch the machines. This package runs on people's own machines,
and no part of it is deployed to Lambda.
"""
