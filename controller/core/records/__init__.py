"""Facts about instances, groups and jobs. Facts can be merged in any order and any number of times."""
