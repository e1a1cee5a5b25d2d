"""A job runs one command on N machines, which are terminated when the command ends. The code in this package runs in a
Lambda function, as a part of the periodic resync.

The package `submission`, which creates jobs, runs on users' own machines and is not deployed to Lambda.
"""
