"""Recovery from lost workers, nodes and ps-lite groups, from members that take too long, and of the coordinator."""
