"""The program on the machines of `dyntrain job`: a few files in the user data, whose size is limited.

The program runs on plain images: Python 3.9, standard library and boto3, and of dyntrain only `contract.job_files`.
"""
