"""The program that runs on the machines of `dyntrain job`.

The files of this program are in the instance's user data, whose size is limited. The program runs on machine images
without dyntrain. The program uses Python 3.9, the standard library, boto3 and, of dyntrain, only `contract.job_files`.
"""
