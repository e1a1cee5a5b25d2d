"""What commands share: how they reach AWS, say what they wait for and what went wrong, and the options that several
have.
"""
