"""What is known: of the job, of who is there, and of the present generation (`Round`), which the next one replaces
whole.
"""
