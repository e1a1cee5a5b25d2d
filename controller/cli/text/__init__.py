"""Functions that format the data of the package `cli.answers` as text for a terminal. Pure."""
