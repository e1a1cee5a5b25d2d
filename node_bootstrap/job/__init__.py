"""What the machines of `dyntrain job` run: a program of few files that travels in the user data.

It starts on images as they come, before anything is installed: Python 3.9, the standard library and boto3, and of
dyntrain only `controller.contract.job_files`.
"""
