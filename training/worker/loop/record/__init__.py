"""Analysis of MXNet's record of how a loss was computed. Pure, except for reading the record."""
