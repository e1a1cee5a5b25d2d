"""Recovery from lost workers, nodes and ps-lite processes, from late members, and of a restarted coordinator."""
