"""Pure decisions of a node: which steps are left, whose marker counts, when to retry."""
