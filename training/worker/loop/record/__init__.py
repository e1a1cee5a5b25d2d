"""Analysis of MXNet's record of how a loss was computed. This package is pure, except that it reads the record."""
