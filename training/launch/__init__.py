"""Jobs that a person launches by hand, on given hosts or on a cluster's nodes."""
