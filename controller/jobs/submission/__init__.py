"""Submit a job: check the request, pack the code, and launch the machines. The package runs on users' own machines, and
no part of the package is deployed to Lambda.
"""
