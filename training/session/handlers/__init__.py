"""Handlers of messages from nodes, from workers and from people. A message that arrives too late changes nothing."""
