"""Bare machines: minimal Debian systems with a systemd of their own, which run an instance's user data unchanged.

`image` builds the root file system that all bare machines share. `stand_ins` lists the replacements in this root for
things that exist only in AWS. `host` passes this host's network settings to a machine. `boot` runs one machine.
"""
