"""Handlers of the messages of nodes, connecting workers and members. A message that comes too late changes nothing."""
