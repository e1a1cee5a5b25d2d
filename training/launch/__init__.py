"""Launches jobs that a user starts by hand, on given hosts or on a cluster's nodes."""
