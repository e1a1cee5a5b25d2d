"""Recovers a job after workers, nodes or ps-lite processes are lost, members are late, or the coordinator restarts."""
