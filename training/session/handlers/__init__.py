"""Handlers of messages from nodes and from workers, and of requests by users.

Handlers ignore messages that arrive too late.
"""
