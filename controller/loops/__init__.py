"""The work of the Lambda handlers: gather facts, decide, and apply the decision. This code calls AWS only through the
interfaces in `ports`.
"""
