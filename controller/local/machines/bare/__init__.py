"""Bare machines: minimal Debian systems with a systemd of their own, which run an instance's user data unchanged.

`image` makes their common root once, `stand_ins` lists what it has in place of things that are only in AWS, `host` is
what a machine is lent of this host's network settings, `boot` runs one machine.
"""
