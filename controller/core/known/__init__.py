"""What is known of instances, groups and jobs, in any order and however often it was told."""
