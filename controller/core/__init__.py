"""A cluster's state, and the decisions that follow from the state. Pure: no module of this package calls AWS, reads a
clock or opens a file.
"""
