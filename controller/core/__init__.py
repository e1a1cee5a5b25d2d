"""A cluster's state and the decisions that follow from it. Pure: no AWS, no clock, no files."""
