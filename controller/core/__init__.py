"""A cluster's state, and the decisions that follow from the state. Pure: nothing here calls AWS, reads a clock or opens
a file.
"""
