"""Functions that format the data of `answers` as text for a terminal. Pure."""
