"""Training of one MXNet job on a changing membership: sharding, coordination, re-forming, commits."""
