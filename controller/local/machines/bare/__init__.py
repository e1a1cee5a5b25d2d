"""Bare machines: minimal Debian systems with a systemd of their own, which run an instance's user data unchanged.

The module `image` builds the root file system that all bare machines share. The module `stand_ins` installs
replacements for things that exist only in AWS. The module `host` passes this host's network settings to a bare machine.
The program `boot` runs one bare machine.
"""
