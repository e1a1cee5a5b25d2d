"""Its place makes this folder importable, so that tests can share `fakes`."""
