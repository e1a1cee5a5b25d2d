"""Views, that is, the present state of nodes, as well as the cluster's target and the reasons shown to users."""
