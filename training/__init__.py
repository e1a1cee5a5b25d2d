"""Trains one MXNet job on a membership that changes: sharding, coordination, re-forming, commits."""
