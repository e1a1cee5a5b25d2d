"""The program that runs on the machines of `dyntrain job`. Its files are in the user data, whose size is limited.

The program runs on machine images without dyntrain. It uses Python 3.9, the standard library, boto3 and, of dyntrain,
only `contract.job_files`.
"""
