"""An instance and a cluster as they stand, the target, and the reasons that people are told."""
