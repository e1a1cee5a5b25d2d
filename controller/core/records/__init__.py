"""Facts about instances, groups and jobs; they join in any order and however often they arrive."""
